"""What callers of the store hold: frozen values, and the states and keys they are named by.

Nothing here loads SQLAlchemy; the rooms beside it read and write these values.
"""
