"""WHAT WE KNOW: workloads, targets, records, the best of them, blobs and jobs, durably.

`Store` is the contract, `open_store` the way in, to a SQLite file or a PostgreSQL server. Importing
this package costs nothing: SQLAlchemy is loaded when the first of its names is used, Alembic only
when a database has to be upgraded.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .location import default_url as default_url
    from .opening import open_store as open_store
    from .quick import artefacts_of_record as artefacts_of_record
    from .quick import best_record as best_record
    from .store import Store as Store

_HOME = {
    "Store": ".store",
    "artefacts_of_record": ".quick",
    "best_record": ".quick",
    "default_url": ".location",
    "open_store": ".opening",
}

__all__ = ["Store", "artefacts_of_record", "best_record", "default_url", "open_store"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)
