"""Measure on other machines, through Dask distributed (the extra `fleet`).

`measurer.py` is the interface for a search, `dispatch.py` assigns candidates and handles losses,
`connection.py` is the only use of Dask on this side, and `host.py` runs on the machines. What
travels is in `messages.py`. Nothing here imports Dask before it is used.
"""
