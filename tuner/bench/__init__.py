"""A kernel timed in alternation with what other libraries make of the same workload."""
