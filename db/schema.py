"""Which schemas there are. Oldest first: a database at any of these can be upgraded."""

REVISIONS = ("0001",)
HEAD = REVISIONS[-1]
