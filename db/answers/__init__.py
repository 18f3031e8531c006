"""The rows on which answers depend, and preparations of tasks that were not tuned."""
