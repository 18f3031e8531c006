"""The dashboard: HTML pages on top of the same state as the API.

Modules with routes know paths, `views` has frozen values that templates print, and `inspector` gets
views that take long to compute (loops, assembly, bounds) from a helper process. Templates escape
everything; scripts and styles are files of `static/`, so that the content policy forbids all
others.
"""
