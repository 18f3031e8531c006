"""The reference: expected outputs by NumPy, and bounds on the error of a correct kernel."""
