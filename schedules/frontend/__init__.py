"""Ways to write a computation: expressions in Python and index notation."""
