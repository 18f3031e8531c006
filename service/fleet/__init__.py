"""The processes of a fleet: Dask's scheduler, started by `serve`, and a worker on each machine."""
