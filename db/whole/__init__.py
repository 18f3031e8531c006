"""The database as a whole: copies, exports, checks, statistics, lists and what may be deleted."""
