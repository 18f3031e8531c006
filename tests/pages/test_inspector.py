"""What takes long is made once, by few at a time, and forgotten when there is too much of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tilewright.service.errors import TooBusy
from tilewright.service.http.pages.inspector import MOST_WAITING, Inspector
from tilewright.service.http.pages.roofline import level_of, roofline


def test_the_same_question_is_asked_once() -> None:
    asked: list[str] = []

    def ask(what: str, document: dict[str, Any], named: str) -> dict[str, Any]:
        asked.append(what)
        return {"text": "x" * 100}

    inspector = Inspector(ask, most_bytes=250)
    for key in ("a", "a", "b", "a", "c", "b"):
        assert inspector.show("nests", key, {})["text"]
    # Two fit: the one not looked at for longest is forgotten.
    assert len(asked) == 4


def test_more_than_a_few_waiting_are_told_to_come_back() -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def ask(what: str, document: dict[str, Any], named: str) -> dict[str, Any]:
        begun.release()
        assert go.wait(10)
        return {}

    inspector = Inspector(ask)
    threads = [
        threading.Thread(target=inspector.show, args=("nests", str(number), {}))
        for number in range(MOST_WAITING)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=60)
    with pytest.raises(TooBusy):
        inspector.show("nests", "one too many", {})
    go.set()
    for thread in threads:
        thread.join()
    inspector.show("nests", "one more", {})


def test_a_failure_is_not_kept() -> None:
    asked: list[str] = []

    def ask(what: str, document: dict[str, Any], named: str) -> dict[str, Any]:
        asked.append(what)
        if len(asked) == 1:
            raise TooBusy("later")
        return {"text": "now"}

    inspector = Inspector(ask)
    with pytest.raises(TooBusy):
        inspector.show("nests", "a", {})
    assert inspector.show("nests", "a", {}) == {"text": "now"}


def test_a_kernel_at_its_bound_lies_on_the_roof() -> None:
    # 2 operations a byte under 10 GB/s: 20 GFLOP/s is all there is; 64 a byte reach the peak.
    below = roofline(100.0, 10.0, 2e9, 1e9, [("best", "best", 0.1)])
    above = roofline(100.0, 10.0, 64e9, 1e9, [("best", "best", 0.64)])
    assert below is not None
    assert above is not None
    (x0, y0), (x1, y1), (x2, y2) = below.slopes[0].line
    point = below.points[0]
    on_slope = y0 + (y1 - y0) * (point.x - x0) / (x1 - x0)
    assert point.y == pytest.approx(on_slope, abs=0.3)
    assert above.points[0].y == pytest.approx(above.slopes[0].line[-1][1], abs=0.3)
    assert y1 == y2
    assert x1 < x2


def test_data_in_a_cache_has_the_roof_of_that_cache() -> None:
    found = roofline(
        100.0, 10.0, 2e9, 1e9, [("best", "best", 0.02)], level_of("L3", 0.02, 1e9)
    )  # fmt: skip
    assert found is not None
    assert [(slope.name, slope.gbs) for slope in found.slopes] == [("L3", 50.0), ("memory", 10.0)]
    assert found.points[0].y == pytest.approx(found.slopes[0].line[-1][1], abs=0.3)
    assert level_of("memory", 0.02, 1e9) is None
    assert level_of("compute", 0.02, 1e9) is None


@pytest.mark.parametrize("gap", range(4))
def test_nothing_to_draw_is_no_drawing(gap: int) -> None:
    rates = [100.0, 10.0, 2e9, 1e9]
    rates[gap] = 0.0
    peak, bandwidth, flops, moved = rates
    assert roofline(peak, bandwidth, flops, moved, [("best", "best", 0.1)]) is None
