"""Counts of the instructions, bytes, tasks and registers of a setting's loop nest."""
