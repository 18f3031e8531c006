"""Entity tags: whether the asker has an answer already (RFC 9110, section 13.1.2)."""

from __future__ import annotations


def names(if_none_match: str | None, etag: str) -> bool:
    """Whether `If-None-Match` names `etag`; weak comparison, as the RFC has it."""
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag in tags
