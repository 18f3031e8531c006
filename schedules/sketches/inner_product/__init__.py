"""Inner products whose lanes lie along the reduction."""
