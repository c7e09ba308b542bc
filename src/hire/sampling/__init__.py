"""Sampling for training: episodes, tasks, negatives, contexts."""
