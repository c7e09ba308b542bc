"""Few-shot systems under one contract; registry.py lists them."""
