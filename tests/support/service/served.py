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
def service(folder: Path, db: str) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """`tilewright serve` in a process of its own, ended with SIGTERM."""
    words = ["serve", "--port", "0", "--db", db, "--measurer-folder", str(folder), "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        with Client(json.loads("".join(lines))["url"]) as client:
            yield client, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECS)
        process.stdout.close()
