"""What builds use: lock files that pin kernels, their objects for many CPUs, bundles, CMake."""
