"""Requests to the runner: how a kernel is checked and timed.

Tests of the checker (`tests/support/planting/run.py`) use them as well, so that they test the
verification that candidates undergo.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedules.trace import Trace

from ...codegen.abi import Needs
from ...judge.team_sizes import checked_team_sizes, further_team_sizes

_REPEATS = 10


def kernel_job(symbol: str, threads: int, needs: Needs, trace: Trace) -> dict[str, Any]:
    """Fields of `job.CheckJob`: the needs of the kernel `symbol` of `trace`, and the rewrites, on
    which its correct results depend."""
    return {
        "rewrites": Trace(trace.rewrites).to_json(),
        "symbol": symbol,
        "workspace_bytes": needs.workspace_bytes,
        "threads": threads,
        "constants": needs.constants,
        "packed_bytes": needs.packed_bytes,
        "prepacked_workspace_bytes": needs.prepacked_workspace_bytes,
    }


def checked_in_full(job: dict[str, Any]) -> dict[str, Any]:
    """`job` for the runner's "check": every entry, each number of threads that `checked_team_sizes`
    names, and, for kernels of several threads, repeated on the real runtime."""
    threads = job["threads"]
    return job | {
        "team_sizes": checked_team_sizes(threads),
        "further_team_sizes": further_team_sizes(threads),
        "repeats": _REPEATS if threads > 1 else 1,
        "every_entry": True,
    }


def full_check_calls(job: dict[str, Any]) -> int:
    """Work of a full check's longest case, in calls of a quick check's first case."""
    return _REPEATS + len(checked_team_sizes(job["threads"]))
