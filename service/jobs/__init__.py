"""Tuning work: requested, stored, run by a worker."""
