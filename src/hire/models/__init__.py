"""Few-shot systems, one file each, all under one contract."""
