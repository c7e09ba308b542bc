"""Teach a relation, ask for answers, see why."""
