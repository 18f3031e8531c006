"""Moving the write-ahead log into the database file, one process at a time.

SQLite 3.7.0 to 3.51.2 can corrupt a database when one connection resets the log while another
writes or checkpoints ("WAL-reset bug", fixed in 3.51.3), and that is the SQLite many Pythons
carry. So no connection checkpoints on its own; `SqliteDatabase.checkpoint` alone does, as the one
holder of the lock file, while a second connection keeps every writer out. The one exception is
SQLite's own checkpoint when the last connection to the file closes: it has the file to itself.
"""

from __future__ import annotations

from pathlib import Path

CHECKPOINT_BYTES = 16 * 1024 * 1024


def log_bytes(path: Path) -> int:
    """Size of the write-ahead log, 0 if there is none."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0
