"""The object code of measured candidates, which a race times again without compiling it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from math import inf

from tilewright.schedules.record import MeasureResult
from tilewright.schedules.trace import Trace

from ...compiling.pool import Compiled

MOST_BYTES = 1 << 20  # about 50 kernels


@dataclass(frozen=True, slots=True)
class _Kept:
    compiled: Compiled
    run_secs: float


@dataclass(slots=True)
class MeasuredObjects:
    """The hash of each measured candidate's object code, and the code of the fastest ones.

    The code of the first candidate, the default schedule, is always kept, because every race has
    it. The rest takes at most `most_bytes`.
    """

    most_bytes: int = MOST_BYTES
    _sha256: dict[Trace, str] = field(default_factory=dict)
    _kept: dict[Trace, _Kept] = field(default_factory=dict)

    def sha256(self, trace: Trace) -> str | None:
        """Return the hash of the code that was measured last for `trace`, or None."""
        return self._sha256.get(trace)

    def add(self, trace: Trace, compiled: Compiled, result: MeasureResult | None) -> None:
        """Note the code of a candidate, and keep it if `result` is a success."""
        self._sha256[trace] = sha256(compiled.object_bytes)
        if result is None or not result.ok:
            return
        secs = inf if result.run_secs_estimate is None else result.run_secs_estimate
        self._kept[trace] = _Kept(compiled, secs)
        others = sorted(list(self._kept)[1:], key=lambda other: self._kept[other].run_secs)
        size = 0
        for other in others:
            size += len(self._kept[other].compiled.object_bytes)
            if size > self.most_bytes:
                del self._kept[other]

    def compiled(self, trace: Trace, key: int) -> Compiled | None:
        """Return the kept code of a candidate as an outcome of the compile workers with this `key`
        that took no time, or None."""
        kept = self._kept.get(trace)
        return None if kept is None else replace(kept.compiled, key=key, secs=0.0)

    def drop(self) -> None:
        """Free the code. The hashes remain."""
        self._kept.clear()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
