"""What the embedding-based few-shot systems of the literature share, so that each file has its equations alone."""
