"""What a workload's results must be, computed slowly, and how far a kernel may be from them."""
