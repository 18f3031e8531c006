"""The loop nest: what it is, how it is printed and proved."""
