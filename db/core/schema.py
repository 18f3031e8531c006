"""The revisions of the schema, and the errors for revisions this version cannot use."""

from __future__ import annotations

from ..errors import StoreNewer, StoreOlder

# Oldest first: a database at any of these revisions can be upgraded.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010")
HEAD = REVISIONS[-1]


def refuse_newer(name: object, revision: str) -> None:
    """Raise StoreNewer if this version does not know `revision`."""
    if revision not in REVISIONS:
        raise StoreNewer(
            f"database {name}: its schema is revision {revision!r}, this version knows up to "
            f"{HEAD!r}; use a newer tilewright, or another database (--db)"
        )


def refuse_older(name: object, revision: str | None) -> None:
    """Raise StoreOlder if `revision` precedes the one this version works with; None is an empty
    file."""
    if revision != HEAD:
        raise StoreOlder(
            f"database {name}: its schema is revision {revision or 'none'}, this version needs "
            f"{HEAD}; run `tilewright db upgrade --db {name}`"
        )
