"""API keys as text: creation, parsing, comparison. Only the owner of a key has its text.

In `tw_ID_SECRET`, ID (50 random bits) identifies the row, and SECRET has 256 random bits. The text
is hashed once with SHA-256: a secret of this length cannot be guessed, so a slow hash adds nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tilewright.db.values.jobs import ApiKey
from tilewright.service.errors import InvalidField

SECRET_BYTES = 32
ID_BYTES = 7  # 56 bits; ten letters contain 50 of them
ID_LETTERS = 10
_KEY = re.compile(r"tw_([a-z2-7]{10})_[a-z2-7]{52}", re.ASCII)
_LENGTH = re.compile(r"([1-9]\d{0,4})(h|d|w|y)", re.ASCII)
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_UNITS = {
    "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1),
    "y": timedelta(days=365),
}  # fmt: skip


class KeyScope(StrEnum):
    """The permissions of a key. `admin` permits everything and sees the jobs of every owner."""

    SUBMIT = "submit"
    READ = "read"
    PUBLISH = "publish"
    ADMIN = "admin"


DEFAULT_SCOPES = (KeyScope.SUBMIT, KeyScope.READ)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. `owner` is None for an anonymous caller of a service without keys."""

    owner: str | None
    key_id: str
    scopes: frozenset[KeyScope]

    def may(self, scope: KeyScope) -> bool:
        return scope in self.scopes or KeyScope.ADMIN in self.scopes

    @property
    def visible_owner(self) -> str | None:
        """The owner whose jobs the caller may see, or None for all jobs."""
        return None if KeyScope.ADMIN in self.scopes else self.owner


ANYBODY = Principal(None, "", frozenset(KeyScope))


def new_key(
    *,
    owner: str,
    note: str,
    scopes: tuple[KeyScope, ...],
    now: datetime,
    expires_at: datetime | None,
    entropy: Callable[[int], bytes],
) -> tuple[str, ApiKey]:
    """Create a key. Return its text, which is shown only once, and the row to store. Without an
    `owner`, the key's id is the owner."""
    key_id = _letters(entropy(ID_BYTES))[:ID_LETTERS]
    text = f"tw_{key_id}_{_letters(entropy(SECRET_BYTES))}"
    key = ApiKey(
        id=key_id,
        owner=owner or key_id,
        note=note,
        scopes=tuple(sorted(set(scopes))),
        secret_sha256=digest_of(text),
        created_at=now,
        expires_at=expires_at,
    )
    return text, key


def id_of(text: str) -> str | None:
    """Return the id in a key's text, or None if it is not the text of a key."""
    match = _KEY.fullmatch(text)
    return None if match is None else match[1]


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def matches_key(text: str, key: ApiKey | None) -> bool:
    """Return whether `text` is the text of the key. An unknown key takes the same time."""
    stored = key.secret_sha256 if key is not None else "0" * 64
    return hmac.compare_digest(digest_of(text), stored) and key is not None


def key_of_owner(caller: Principal, idempotency_key: str | None) -> str | None:
    """Return the idempotency key as stored: for a caller with an owner, a hash of the owner and the
    key. So equal keys of two owners differ."""
    if caller.owner is None or idempotency_key is None:
        return idempotency_key
    return hashlib.sha256(f"{caller.owner}\0{idempotency_key}".encode()).hexdigest()


def expiry_of(text: str, now: datetime) -> datetime:
    """Return the time that is `text` (90d, 12h, 2w, 1y) after `now`. Raise InvalidField for other
    text."""
    try:
        return now + duration_of(text)
    except OverflowError as error:
        raise _no_duration(text) from error


def duration_of(text: str) -> timedelta:
    """Parse a duration (90d, 12h, 2w, 1y). Raise InvalidField for other text."""
    match = _LENGTH.fullmatch(text)
    if match is None:
        raise _no_duration(text)
    return int(match[1]) * _UNITS[match[2]]


def _no_duration(text: str) -> InvalidField:
    return InvalidField(f"{text[:40]!r}: must be a length of time such as 90d, 12h, 2w or 1y")


def scopes_of(text: str) -> tuple[KeyScope, ...]:
    """Parse scopes such as `submit,read`. Raise InvalidField if a scope is unknown."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(KeyScope)]
    if unknown or not names:
        raise InvalidField(
            f"scopes {text[:80]!r}: must be one or more of {', '.join(KeyScope)}, with commas"
        )
    return tuple(sorted({KeyScope(name) for name in names}))


def checked_owner(text: str) -> str:
    """Return `text` if it is a valid name of an owner. Raise InvalidField if not."""
    if not _OWNER.fullmatch(text):
        raise InvalidField(
            f"owner {text[:70]!r}: must be 1 to 64 letters, digits, dots, dashes, underscores or @"
        )
    return text


def checked_note(text: str) -> str:
    """Return `text` if it is a valid comment on a key. Raise InvalidField if not."""
    if len(text) > 200 or not (text.isprintable() or text == ""):
        raise InvalidField(f"note {text[:40]!r}: must be at most 200 printable characters")
    return text


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()
