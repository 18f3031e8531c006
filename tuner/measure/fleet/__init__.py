"""Measurement on other machines, through Dask distributed (the extra `fleet`).

`measurer.py` is the interface for a search. `dispatch.py` distributes candidates to machines and
handles lost machines. In the coordinator, only `connection.py` uses Dask. `host.py` runs on each
machine, and `messages.py` defines the messages. No module imports Dask before it is used.
"""
