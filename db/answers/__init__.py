"""The stored basis of answers: the evidence on a task, and preparations of tasks that were not
tuned."""
