"""From a loop nest to LLVM text: loops, leaves, vectors, math functions."""
