"""The CPU as a back end: loading, calling, checking and timing kernels, and probing."""
