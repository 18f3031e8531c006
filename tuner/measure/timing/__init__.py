"""What the time of a candidate is, and whether the cores were its own."""
