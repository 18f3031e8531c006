"""Measurers that read timings from a file, and need no machine."""
