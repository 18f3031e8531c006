"""Counts of what a setting's nest does: instructions, bytes, tasks, registers."""
