"""Measurers that take timings from a file instead of a machine."""
