"""Stages computed together, row by row or block of columns by block of columns."""
