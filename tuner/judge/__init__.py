"""Correct results, and rules of timing races, for the checkers of all back ends."""
