"""The CPU as a back end: how kernels are loaded, called, checked and timed, and what it can do."""
