"""All facts about instruction sets: what code for a target may use, and how its CPUs are asked."""
