"""Pages of lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ..errors import BadPageToken

MAX_PAGE = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list. `next_token` requests the following page; None at the end."""

    items: tuple[T, ...]
    next_token: str | None


def clamp_page_size(size: int) -> int:
    """Return `size`, clamped to 1..MAX_PAGE."""
    return max(1, min(size, MAX_PAGE))


def bad_token(token: str) -> BadPageToken:
    """Return the error for a token that no page issued."""
    return BadPageToken(f"page token {token[:100]!r}: give the next_token of the page before")


def check_job_token(token: str | None) -> None:
    """Raise BadPageToken if `token`, of a page of jobs, is not a job id."""
    if token is not None and not (len(token) == 26 and token.isascii() and token.isalnum()):
        raise bad_token(token)
