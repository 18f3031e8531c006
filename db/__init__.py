"""Durable storage of workloads, targets, records, best records, blobs and jobs.

`open_store` returns a `Store` on a SQLite file or a PostgreSQL server. Callers import both from
this package, the stored values from `tilewright.db.values`, and errors from `tilewright.db.errors`;
the other subpackages are private to the store. Importing this package is cheap: SQLAlchemy is
loaded with `Store` or `open_store`, and Alembic only when a database has to be upgraded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .answers.evidence import StoredEvidence as StoredEvidence
    from .core.location import default_url as default_url
    from .core.location import file_is_there as file_is_there
    from .core.location import is_postgres as is_postgres
    from .core.location import name_of as name_of
    from .core.location import sqlite_path as sqlite_path
    from .core.schema import HEAD as HEAD
    from .opening import open_store as open_store
    from .quick import artefacts_of_record as artefacts_of_record
    from .quick import best_record as best_record
    from .quick import full_checks_of as full_checks_of
    from .quick import open_claims as open_claims
    from .quick import related_records as related_records
    from .quick import stored_model as stored_model
    from .store import Store as Store

_NAMES = {
    ".answers.evidence": ("StoredEvidence",),
    ".core.location": ("default_url", "file_is_there", "is_postgres", "name_of", "sqlite_path"),
    ".core.schema": ("HEAD",),
    ".opening": ("open_store",),
    ".quick": (
        "artefacts_of_record",
        "best_record",
        "full_checks_of",
        "open_claims",
        "related_records",
        "stored_model",
    ),
    ".store": ("Store",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)
