"""Measure on other machines, through Dask distributed (the extra `fleet`).

Read `measurer.py` for what a search sees, `dispatch.py` for who measures what and what follows a
loss, `connection.py` for the only use of Dask on this side and `host.py` for the far side. What
travels is in `messages.py`. Nothing here imports Dask before it is used.
"""
