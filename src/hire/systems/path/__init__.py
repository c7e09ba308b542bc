"""The path level: ranks candidates by the paths that lead to them and by shared neighbors, given the references."""
