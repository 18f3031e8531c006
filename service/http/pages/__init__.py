"""The dashboard: pages for people over the same answers the API gives.

`routes` know paths, `views` are frozen values that templates print, `inspect` shows what takes long
to make (loops, assembly, bounds) through a helper process. Templates escape everything; scripts and
styles are files of `static/`, so that the content policy forbids all others.
"""
