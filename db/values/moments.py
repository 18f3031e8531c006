"""Moments as text: RFC 3339, UTC, microseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(moment: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`; ValueError for a moment without a zone."""
    if moment.tzinfo is None:
        raise ValueError(f"a moment needs its zone, got {moment!r}")
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def moment_of(text: str) -> datetime:
    """The moment of an RFC 3339 time, in UTC; ValueError if it is none or names no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a moment needs its zone, got {text!r}")
    return moment.astimezone(UTC)
