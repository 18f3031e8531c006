"""A cache of parsed workloads, by the text from which they are parsed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.service.resolve import workloads
from tilewright.service.resolve.bounded_cache import BoundedCache
from tilewright.service.resolve.requests import check_size

if TYPE_CHECKING:
    from tilewright.schedules.workload.workload import Workload
    from tilewright.service.settings import Settings

MEMORY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The key of a valid workload that this service accepts, and its summary as JSON."""

    key: str
    summary: bytes


class ParsedWorkloads:
    """Parses the notations and documents of workloads. Thread-safe."""

    def __init__(self, settings: Settings, size_bytes: int = MEMORY_BYTES) -> None:
        self._settings = settings
        self._named: BoundedCache[bytes, ParsedName] = BoundedCache(size_bytes)

    def parsed_name(self, spelled: str | dict[str, Any]) -> ParsedName:
        """Return the key and summary of a workload. Raise WorkloadError if it is invalid or too
        large."""
        text = json.dumps(spelled, separators=(",", ":"), sort_keys=True)
        # A string and a document never have the same text: only a string begins with a quote.
        digest = hashlib.sha256(text.encode()).digest()
        known = self._named.get(digest)
        if known is None:
            workload = self.read(spelled)
            summary = json.dumps(workloads.workload_summary(workload), separators=(",", ":"))
            known = ParsedName(workload.key, summary.encode())
            self._named.put(digest, known, len(known.summary) + len(known.key))
        return known

    def read(self, spelled: str | dict[str, Any]) -> Workload:
        """Return the workload. Raise WorkloadError if it is invalid or too large."""
        workload = workloads.workload_of(spelled)
        check_size(workload, self._settings)
        return workload
