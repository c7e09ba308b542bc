"""Gradient steps, the same for everything that learns: schedule, clipping, EMA, tables that move row by row."""
