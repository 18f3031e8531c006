"""Comparisons with NumPy and PyTorch. Tuning imports none of it: contracts in pyproject.toml."""
