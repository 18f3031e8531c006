"""Tuning jobs: requests, storage, and the worker that runs them."""
