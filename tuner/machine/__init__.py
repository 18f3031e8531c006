"""The machine kernels run on: its cores and caches, what probes say of it, the bound they set."""
