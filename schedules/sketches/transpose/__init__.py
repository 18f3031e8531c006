"""Sketches with blocks transposed in registers: copies and sums."""
