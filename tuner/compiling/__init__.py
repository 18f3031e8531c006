"""Compiling in processes of its own: workers, deadlines, and LLVM that may end any of them."""
