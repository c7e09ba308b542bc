"""A service from Python: the same methods as a model in this process."""
