"""The loop nest: what it is, how it is printed, proved and interpreted."""
