"""The requests to the runner, and the client of its process."""
