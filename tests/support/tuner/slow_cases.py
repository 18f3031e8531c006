"""Cases that take for ever, for runs that may not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tilewright.tuner.judge.cases import Cases, CheckCase, WorkloadCases
from tilewright.tuner.judge.cases import open_cases as open_in_time

FOR_EVER_SECS = 1000.0


def open_never(document: dict[str, Any]) -> Cases:
    """A reference that does not end."""
    time.sleep(FOR_EVER_SECS)
    return open_in_time(document)


class StopsAfterTwo(WorkloadCases):
    """Cases of which the third does not end."""

    def full(self) -> Iterator[CheckCase]:
        yield from islice(super().full(), 2)
        time.sleep(FOR_EVER_SECS)


def open_that_stops(document: dict[str, Any]) -> Cases:
    """Cases of which the third does not end."""
    found = open_in_time(document)
    assert isinstance(found, WorkloadCases)
    return StopsAfterTwo(found.oracle)
