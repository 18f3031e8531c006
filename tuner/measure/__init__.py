"""Candidates in, checked and timed results out: here, in a fleet, or from a file."""
