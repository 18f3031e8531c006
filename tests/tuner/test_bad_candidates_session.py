"""Candidates that crash, hang, eat memory or lie in the midst of a session: it goes on.

`benchmarks/bad_candidates.py` does the same with the slow ones as well.
"""

from __future__ import annotations

import psutil
import pytest

from tests.support.planting.bad_kernels import EXPECTED, run_sabotaged

SLOW = ("compiler hangs", "compiler eats memory")
QUICK = tuple(kind for kind in EXPECTED if kind not in SLOW)
A_FEW = ("null pointer", "one past the end", "does nothing", "compiler aborts")


@pytest.mark.parametrize(("threads", "kinds"), [(1, QUICK), (2, A_FEW)])
def test_a_session_survives_every_kind_of_bad_candidate(
    threads: int, kinds: tuple[str, ...]
) -> None:
    before = psutil.Process().children(recursive=True)
    report, found = run_sabotaged(kinds, threads)
    assert {kind: result.status for kind, result in found.items()} == {
        kind: EXPECTED[kind] for kind in kinds
    }
    assert all(result.detail and "\n" not in result.detail for result in found.values())
    assert not any(result.run_secs or result.run_secs_estimate for result in found.values())
    assert report.best is not None
    assert report.best.verified
    assert (report.trials["total"], report.trials["ok"]) == (2 * len(kinds), len(kinds))
    assert psutil.Process().children(recursive=True) == before
