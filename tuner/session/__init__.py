"""The tuning session: ask, measure, store, tell; its options and its report."""
