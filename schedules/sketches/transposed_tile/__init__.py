"""The sketch of a tiled reduction that is transposed row by row."""
