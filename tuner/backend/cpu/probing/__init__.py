"""The program that measures a CPU: peaks, bandwidths, the cost of a parallel region."""
