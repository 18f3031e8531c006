"""Sketches of stages that are computed together, one row or one block of columns at a time."""
