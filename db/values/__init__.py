"""The frozen values that the store takes and returns, with their states and keys.

This package does not load SQLAlchemy.
"""
