"""The machine that kernels run on: its cores and caches, its probes, and the roofline bound."""
