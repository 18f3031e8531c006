"""Back ends: the kinds of machines that kernels are made for. A new one is a room beside `cpu`."""
