"""One candidate in a process of its own: the runner that forks it, its checks, its end."""
