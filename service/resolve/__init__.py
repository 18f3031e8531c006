"""What commands and requests name, made into values: workloads, targets, toolchains."""
