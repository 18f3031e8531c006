"""The search: strategies, their interface, and the space they search."""
