"""How a practised user computes a workload with PyTorch: every variant, and the fastest of them."""
