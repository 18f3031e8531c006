"""The search for the next candidates: strategies, their protocol, and the space that they
explore."""
