"""The tuning session: ask, measure, store, tell; what it is asked for and what it reports."""
