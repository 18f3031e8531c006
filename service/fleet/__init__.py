"""The processes of a fleet: Dask's scheduler beside `serve`, and a worker on each machine."""
