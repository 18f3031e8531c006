"""Views of records that take long to compute: loops, assembly, bound. A helper process computes
each view once, within a deadline. The result is cached, because records never change."""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewright.service import timeouts
from tilewright.service.errors import TooBusy
from tilewright.service.http.state import ConcurrencyLimit
from tilewright.tuner.compiling.helper_process import HelperProcess

MOST_WAITING = 4
"""Requests that may wait for the helper. Each of them occupies a thread."""
CACHE_BYTES = 32 << 20

Document = dict[str, Any]


@dataclass(slots=True)
class Inspector:
    """Calls the helper and caches its results. Thread-safe."""

    ask: Callable[[str, Document, str], Document]
    most_bytes: int = CACHE_BYTES
    _gate: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(MOST_WAITING))
    _known: OrderedDict[tuple[str, str], Document] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def show(self, what: str, key: str, document: Document) -> Document:
        """Return the result of function `what` of `tilewright.service.answers.helper_views` for
        `document`. `key` identifies the document permanently. Raise TooBusy, DeadlineError,
        CompileError or ScheduleError."""
        name = (what, key)
        known = self._recall(name)
        if known is not None:
            return known
        if not self._gate.enter():
            raise TooBusy("too many loops and listings are being computed", retry_after_secs=2)
        try:
            found = self._recall(name)
            if found is None:
                found = self.ask(what, document, f"{what} of {key[:17]}")
                self._keep(name, found)
            return found
        finally:
            self._gate.leave()

    def _recall(self, name: tuple[str, str]) -> Document | None:
        with self._lock:
            if name in self._known:
                self._known.move_to_end(name)
            return self._known.get(name)

    def _keep(self, name: tuple[str, str], found: Document) -> None:
        with self._lock:
            self._known[name] = found
            self._bytes += _size(found)
            while self._bytes > self.most_bytes and len(self._known) > 1:
                _, dropped = self._known.popitem(last=False)
                self._bytes -= _size(dropped)


def _size(document: Document) -> int:
    return sum(len(str(value)) for value in document.values())


_helper = HelperProcess(timeouts.INSPECTION_SECS)
atexit.register(_helper.close)


def _ask_helper(what: str, document: Document, named: str) -> Document:
    return _helper.call(f"tilewright.service.answers.helper_views:{what}", document, named).document


_shared = Inspector(_ask_helper)


def shared() -> Inspector:
    """Return the inspector of this process. Its helper process ends with this process."""
    return _shared
