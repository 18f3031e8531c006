"""The sketch of a scan."""
