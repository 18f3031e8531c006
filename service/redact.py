"""What must not be read in a log or in an answer, taken out of a text."""

from __future__ import annotations

import re

HIDDEN = "[hidden]"
_SECRETS = re.compile(
    r"(?P<key>tw_[a-z2-7]{10}_)[a-z2-7]{8,}"  # the id stays: it tells which key it was
    r"|(?P<bearer>\b[Bb]earer\s+)[\w.~+/=-]{8,}"
    r"|(?P<url>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)",
    re.ASCII,
)


def redacted(text: str) -> str:
    """`text` without the secrets of keys and the passwords of database URLs."""
    if "tw_" not in text and "earer" not in text and "://" not in text:
        return text
    return _SECRETS.sub(lambda found: next(part for part in found.groups() if part) + HIDDEN, text)
