"""How well a system ranks, and what its scores mean."""
