"""Whether a kernel is right: inputs that tell, what may come out, and races."""
