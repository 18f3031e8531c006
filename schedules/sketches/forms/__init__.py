"""Rewritten forms of a workload that compete with the original."""
