"""Timings from a file in place of a machine."""
