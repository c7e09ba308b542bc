"""The path level: what the graph between head and candidate says, in the light of the references."""
