"""Resolves the names in commands and requests: workloads, targets, toolchains."""
