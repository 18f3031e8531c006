"""The machine that runs kernels: cores, caches, probes, and the bound derived from them."""
