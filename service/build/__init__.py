"""Files for builds: lock files that pin kernels, their objects for many CPUs, bundles, CMake."""
