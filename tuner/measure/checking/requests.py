"""Requests to the runner, which state how it checks and times a kernel. Tests of the runner use the
same requests."""

from __future__ import annotations

from typing import Any

from tilewright.schedules.rewrites import changing_operations
from tilewright.schedules.trace import Trace

from ...codegen.abi import Needs
from ...judge.team_sizes import checked_team_sizes, further_team_sizes

_REPEATS = 10


def kernel_job(symbol: str, threads: int, needs: Needs, trace: Trace) -> dict[str, Any]:
    """Return the fields of `job.CheckJob` for the kernel `symbol` of `trace`."""
    return {
        "rewrites": Trace(changing_operations(trace.rewrites)).to_json(),
        "symbol": symbol,
        "workspace_bytes": needs.workspace_bytes,
        "threads": threads,
        "constants": needs.constants,
        "packed_bytes": needs.packed_bytes,
        "prepacked_workspace_bytes": needs.prepacked_workspace_bytes,
    }


def checked_in_full(job: dict[str, Any]) -> dict[str, Any]:
    """Return `job` for a full check.

    The full check covers every entry and every number of threads in `checked_team_sizes`. Kernels
    of several threads also have repeated runs with OpenMP itself.
    """
    threads = job["threads"]
    return job | {
        "team_sizes": checked_team_sizes(threads),
        "further_team_sizes": further_team_sizes(threads),
        "repeats": _REPEATS if threads > 1 else 1,
        "every_entry": True,
    }


def full_check_calls(job: dict[str, Any]) -> int:
    """Return the work of the longest case in a full check, as a number of calls of a quick
    check."""
    return _REPEATS + len(checked_team_sizes(job["threads"]))
