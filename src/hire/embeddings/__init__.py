"""Embeddings of the background graph, below the systems that start from them."""
