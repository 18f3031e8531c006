"""Requests to a checker, and the client of its process."""
