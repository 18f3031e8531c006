"""Scatters: reductions in which data select the output of each term."""
