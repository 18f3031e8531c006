"""The requests to the checker, and the client of its process."""
