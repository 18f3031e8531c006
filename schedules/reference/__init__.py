"""The reference: a workload's exact results, computed with NumPy, and bounds on the error of a
correct kernel."""
