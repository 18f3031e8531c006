"""The memory that kernels run on while they are checked and timed."""
