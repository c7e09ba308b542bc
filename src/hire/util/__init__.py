"""Shared basics, below everything: arrays, files, tensors, random streams, SVG."""
