"""One training loop, run folders, settings and presets."""
