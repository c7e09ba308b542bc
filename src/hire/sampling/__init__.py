"""What training draws: episodes, tasks, negatives, contexts."""
