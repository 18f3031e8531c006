"""The processes of a fleet: the scheduler beside `serve`, and the worker on each machine."""
