"""Array expressions: whole tensors combined by NumPy's rules. `arrays.py` has the classes."""
