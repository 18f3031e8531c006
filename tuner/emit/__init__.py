"""Translation of LLVM text to object code, and to objects and headers for other programs."""
