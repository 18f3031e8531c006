"""Transposition in registers: copies and reductions."""
