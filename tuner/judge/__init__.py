"""The correct outputs of a workload, and the statistics of its timing, for the checkers of all back
ends."""
