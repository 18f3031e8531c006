"""Facts about instruction sets: what code for a target may use, and how to query its CPUs."""
