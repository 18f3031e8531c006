"""Generate LLVM IR text from a loop nest: loops, leaves, vectors, math functions."""
