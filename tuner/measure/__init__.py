"""Measurement of candidates on this machine, in a fleet, or from a file of timings."""
