"""Timestamps as text: RFC 3339, UTC, microseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """Format `moment` as `2026-01-31T12:00:00.000000Z`. Raise ValueError if it has no time zone."""
    if moment.tzinfo is None:
        raise ValueError(f"a moment needs its zone, got {moment!r}")
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment_of(text: str) -> datetime:
    """Parse an ISO 8601 / RFC 3339 time and convert it to UTC. Raise ValueError if `text` is not a
    time or has no time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a moment needs its zone, got {text!r}")
    return moment.astimezone(UTC)
