"""Front ends: expressions in Python, and index notation."""
