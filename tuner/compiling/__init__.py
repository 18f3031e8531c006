"""Compiling in separate processes, with deadlines, because LLVM may crash or hang."""
