"""The short form of `benchmarks/cancel_service.py`: every cancelled job ends, and its processes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cancel_service import run


def test_cancelled_jobs_end_and_leave_no_process(tmp_path: Path) -> None:
    # How soon is the benchmark's question: no test depends on the time of a loaded machine.
    db = str(tmp_path / "cancelled.sqlite")
    summary = run(3, seed=1, db=db, folder=tmp_path, longest_secs=1.0, most_secs=60.0)
    assert summary.problems == []
    assert len(summary.over_secs) + summary.ended_before == 3
