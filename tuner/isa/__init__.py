"""Facts about instruction sets: the instructions that a target has, and how to query its CPUs."""
