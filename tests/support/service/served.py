"""`tilewright serve` in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.service.client import Client

COMMAND = "import sys; from tilewright.service.cli import main; main(sys.argv[1:])"
PATIENCE_SECS = 60.0


@contextmanager
def serving(
    db: Path | str, folder: Path, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL and the process of a service whose simulated machines are the files of `folder`;
    the process is ended with SIGTERM."""
    words = ["serve", "--port", "0", "--db", str(db), "--measurer-folder", str(folder), "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    try:
        document = "".join(iter(process.stdout.readline, "}\n")) + "}"
        yield json.loads(document)["url"], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECS)
        process.stdout.close()


@contextmanager
def service(folder: Path, db: str) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """A client of a service whose caches lie in `folder` as well, and its process."""
    cache = str(folder / "cache")
    with serving(db, folder, XDG_CACHE_HOME=cache) as (url, process), Client(url) as client:
        yield client, process
