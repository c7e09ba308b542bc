"""The published layout of few-shot datasets: reading, writing, known checksums."""
