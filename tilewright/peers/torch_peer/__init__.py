"""A workload in PyTorch as an experienced user writes it: the fastest of all variants."""
