"""Resolves what commands and requests name: workloads, targets, toolchains."""
