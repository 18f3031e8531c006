"""Workloads that were asked for before are not read again: their key follows from their text."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.service.resolve import workloads
from tilewright.service.resolve.bounded_cache import BoundedCache
from tilewright.service.resolve.requests import admit

if TYPE_CHECKING:
    from tilewright.schedules.workload.workload import Workload
    from tilewright.service.settings import Settings

MEMORY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ParsedName:
    """A valid workload that this service takes on: its key, and what answers say of it as JSON."""

    key: str
    summary: bytes


class ParsedWorkloads:
    """Reads spellings and documents of workloads. Threads may share it."""

    def __init__(self, settings: Settings, size_bytes: int = MEMORY_BYTES) -> None:
        self._settings = settings
        self._named: BoundedCache[bytes, ParsedName] = BoundedCache(size_bytes)

    def named(self, spelled: str | dict[str, Any]) -> ParsedName:
        """The workload that `spelled` stands for. WorkloadError: none, or one that is too large."""
        text = json.dumps(spelled, separators=(",", ":"), sort_keys=True)
        # A string and a document never have the same text: one begins with a quotation mark.
        digest = hashlib.sha256(text.encode()).digest()
        known = self._named.get(digest)
        if known is None:
            workload = self.read(spelled)
            summary = json.dumps(workloads.workload_summary(workload), separators=(",", ":"))
            known = ParsedName(workload.key, summary.encode())
            self._named.put(digest, known, len(known.summary) + len(known.key))
        return known

    def read(self, spelled: str | dict[str, Any]) -> Workload:
        """The workload itself. WorkloadError as for `named`."""
        workload = workloads.workload_of(spelled)
        admit(workload, self._settings)
        return workload
