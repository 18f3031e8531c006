"""How a practised user computes a workload with NumPy: every variant, and the fastest of them."""
