"""The program that checks and times candidates on a CPU: a runner that forks a child for each."""
