"""Measure on other machines, through Dask distributed (the extra `fleet`).

Read `measurer.py` for what a search sees, `dispatch.py` for who measures what and what follows a
loss, `connection.py` for the only use of Dask on this side and `task.py` for the far side. What
travels is in `wire.py`. Nothing here imports Dask before it is used.
"""
