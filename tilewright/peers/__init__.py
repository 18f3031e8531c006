"""Comparisons with NumPy and PyTorch. Tuning imports no module of this package (see the import
contracts in pyproject.toml)."""
