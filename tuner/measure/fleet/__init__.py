"""Measurement on other machines, through Dask distributed (the extra `fleet`).

`measurer.py` is the interface for a search. `dispatch.py` decides which machine measures which
candidates and handles lost machines. `connection.py` is the only use of Dask in the coordinator,
`host.py` the part that runs on each machine, and `messages.py` defines the messages. Nothing here
imports Dask before it is used.
"""
