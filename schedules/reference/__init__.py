"""The reference: a workload's exact results by NumPy, and bounds on the error of a correct
kernel."""
