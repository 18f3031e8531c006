"""The correct outputs of a workload, and the statistics of its timing, for all back ends."""
