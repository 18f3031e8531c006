"""The program that checks and times candidates on a CPU. It forks a child process for each
candidate."""
