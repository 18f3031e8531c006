"""Writes the database every released schema is remembered by: python -m tests.upgrades.dump_schema.

Run it once, when a schema is released, and never again for that schema: the dump is what users'
databases of that version look like. It holds one of everything a store can hold.
"""

from __future__ import annotations

import sqlite3
import tempfile
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from tests.contracts.store_values import every_write
from tilewright.db import HEAD, open_store


def main() -> None:
    numbers = count()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        with open_store(
            str(path),
            clock=lambda: datetime(2026, 11, 21, tzinfo=UTC),
            entropy=lambda size: next(numbers).to_bytes(size, "big"),
        ) as store:
            every_write(store)
        connection = sqlite3.connect(path)
        lines = list(connection.iterdump())
        connection.close()
    target = Path(__file__).parent / f"schema_{HEAD}.sql"
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
