"""Tensors, stages and workloads: validation, operation counts, normal form and JSON."""
