"""Compilation in separate processes with deadlines, because LLVM may end its process."""
