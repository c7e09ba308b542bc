"""The published layout of few-shot datasets: read, written, known by its checksums."""
