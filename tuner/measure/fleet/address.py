"""The address of a fleet's scheduler: the text after `dask:` and `--join`."""

from __future__ import annotations

import re
import socket

from tilewright.schedules.errors import ErrorCategory

from ..protocol import MeasurerError

_ADDRESS = re.compile(r"(?:(tcp|tls)://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})/?")


class FleetError(MeasurerError):
    """No scheduler answers, no suitable machine has joined, or the protocol versions differ."""

    code = "fleet_unavailable"
    category = ErrorCategory.UNAVAILABLE
    title = "No fleet machine can measure"
    advice = (
        "`tilewright fleet ADDRESS` lists machines; `tilewright worker --join ADDRESS` adds one."
    )


def parse_address(text: str) -> str:
    """Return `tcp://HOST:PORT`, `tls://HOST:PORT` or `HOST:PORT` in the form that Dask expects.
    Raise MeasurerError for any other text."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match[3]) < 65536:
        raise MeasurerError(
            f"a fleet's address is tcp://HOST:PORT or tls://HOST:PORT; got {text[:80]!r}"
        )
    return f"{match[1] or 'tcp'}://{match[2]}:{match[3]}"


def check_listens(address: str, timeout_secs: float) -> None:
    """Raise FleetError if no process listens at `address`.

    Dask would retry until its own timeout, although a closed port fails immediately. A TLS address
    is not checked, because the scheduler would log each attempt.
    """
    protocol, _, where = address.partition("://")
    host, _, port = where.rpartition(":")
    if protocol == "tls":
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout_secs).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise FleetError(f"no scheduler answers at {address} ({reason.lower()})") from error
