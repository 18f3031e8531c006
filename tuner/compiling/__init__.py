"""Compilation in separate processes with deadlines, because LLVM may end any of these processes."""
