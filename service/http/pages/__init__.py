"""The dashboard: HTML pages on top of the same state as the API.

Modules with routes handle paths. `views` has the frozen values that templates print. `inspector`
calls a helper process for views that take long to compute (loops, assembly, bounds). Templates
escape all values. Scripts and styles are files of `static/`, and the content policy forbids all
others.
"""
