"""Graphs and few-shot datasets: read, built, opened, checked."""
