"""The values that callers pass to the store and get from it: frozen, with their states and keys.

Nothing here loads SQLAlchemy.
"""
