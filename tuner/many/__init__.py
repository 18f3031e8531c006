"""Many workloads tuned under one budget."""
