"""A workload in NumPy as an experienced user writes it: the fastest of several variants."""
