"""The command line: every command there, every bad input one line and its exit code."""

from __future__ import annotations

COMMANDS = """
tune best bench show emit verify serve submit status watch cancel export import db doctor ops target
""".split()  # noqa: SIM905  # words are easier to read
