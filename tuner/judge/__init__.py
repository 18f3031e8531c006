"""What a right kernel computes, and when its time is known: for the checkers of all back ends."""
