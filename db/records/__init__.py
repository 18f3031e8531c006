"""Workloads, targets, measured records, the best of them, and the files they were built into."""
