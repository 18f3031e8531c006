"""What to try next: strategies, what they promise, and the space they walk."""
