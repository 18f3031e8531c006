"""The two processes of a fleet: Dask's scheduler and its worker, configured for measuring.

Both are programs of Dask. TLS is also configured in Dask: `DASK_DISTRIBUTED__COMM__TLS__...`, or a
file, names the certificates. Addresses then begin with `tls://`.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.service import timeouts
from tilewright.service.errors import CannotServe, MissingExtra
from tilewright.service.fleet.restarting_process import RestartingProcess
from tilewright.service.settings import is_loopback
from tilewright.tuner.measure.fleet.parent_watch import PARENT
from tilewright.tuner.process.child_command import module_command

if TYPE_CHECKING:
    from tilewright.tuner.measure.fleet.messages import MachineDescription

# Start-up: usage errors are reported before Dask is loaded.

_QUIETLY = {"DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "warning"}
_SCHEDULER_SETTINGS = {
    **_QUIETLY,
    # A silent machine is dropped after this time; immediately if its connection is closed.
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "20s",
    # A request is for one machine, so Dask must not move it to another.
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
}
_WORKER_SETTINGS = {
    **_QUIETLY,
    # The profiler would sample the waiting thread 100 times a second during measurements.
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
}
_NO_PAGES = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")
"""Even without a dashboard, Dask serves HTTP, by default on a fixed port of every address."""


def scheduler(address: str) -> RestartingProcess:
    """Return a scheduler at `address` that is restarted when it ends. Machines and jobs then
    reconnect."""
    _needs_dask()
    command = [
        *module_command("distributed.cli.dask_scheduler"),
        *("--host", address, "--preload", "tilewright.tuner.measure.fleet.parent_watch"),
        *_NO_PAGES,
    ]
    environment = {**_SCHEDULER_SETTINGS, PARENT: str(os.getpid())}
    return RestartingProcess("the fleet's scheduler", lambda: command, environment)


def wait_for_scheduler(address: str) -> None:
    """Wait until the scheduler listens at `address`, so that the first job finds it. Raise
    CannotServe if it does not start; its log has the reason."""
    from tilewright.tuner.measure.fleet.address import FleetError, check_listens

    end = time.monotonic() + timeouts.SCHEDULER_START_SECS
    while True:
        try:
            return check_listens(address, timeouts.SCHEDULER_POLL_SECS)
        except FleetError as error:
            if time.monotonic() > end:
                raise CannotServe(
                    f"the fleet's scheduler did not start at {address}",
                    advice="Give a free port of this machine with --fleet-address.",
                ) from error
            time.sleep(timeouts.SCHEDULER_POLL_SECS)


def local_machine(address: str) -> RestartingProcess:
    """Return a process that describes this machine, and then keeps it in the fleet at `address`."""
    command = module_command("tilewright.service.fleet.worker", address)
    return RestartingProcess("the machine of this service", lambda: command, {}, patience_secs=10.0)


def machine(address: str, description: MachineDescription) -> RestartingProcess:
    """Return a process that keeps this machine in the fleet of the scheduler at `address`. The
    scheduler may start later."""
    from tilewright.tuner.measure.fleet.machines import resource_name
    from tilewright.tuner.measure.fleet.preload import ENVIRONMENT

    _needs_dask()
    scratch = Path(tempfile.gettempdir()) / f"tilewright-fleet-{os.getuid()}"

    def command() -> list[str]:
        return [
            *module_command("distributed.cli.dask_worker", address),
            *("--no-nanny", "--nthreads", "1", "--memory-limit", "0", *_NO_PAGES),
            *("--host", address_towards(address)),
            *("--resources", f"{resource_name(description.target)}=1"),
            # A scheduler refuses a second worker with the same name, even after the first died.
            *("--name", f"{description.name}-{uuid.uuid4().hex[:8]}"),
            *("--preload", "tilewright.tuner.measure.fleet.preload"),
            *("--death-timeout", str(timeouts.FLEET_JOIN_SECS)),
            *("--local-directory", str(scratch)),
        ]

    environment = {
        **_WORKER_SETTINGS,
        ENVIRONMENT: description.to_bytes().decode(),
        PARENT: str(os.getpid()),
    }
    return RestartingProcess(f"machine {description.name}", command, environment)


def address_towards(scheduler: str) -> str:
    """Return this machine's address on the route to `scheduler`. The worker listens only there,
    because any client that reaches a Dask worker can run code on it."""
    host, _, port = scheduler.partition("://")[2].rpartition(":")
    try:
        family, kind, _, _, where = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as way:
            way.connect(where)  # a datagram socket: nothing is sent
            return str(way.getsockname()[0])
    except OSError:
        return "127.0.0.1"  # no route now; the worker is restarted and tries again


def check_exposure(address: str, *, unprotected: bool) -> str:
    """Return a scheduler's address in Dask's notation. Raise CannotServe if other machines can
    reach it without certificates, unless `unprotected`. Raise MeasurerError if it is invalid."""
    from tilewright.tuner.measure.fleet.address import parse_address

    where = parse_address(address)
    protocol, _, rest = where.partition("://")
    host, _, _ = rest.rpartition(":")
    if protocol != "tls" and not is_loopback(host) and not unprotected:
        raise CannotServe(
            f"--fleet-address {address} can be reached from other machines without certificates: "
            "any client of a Dask scheduler can run code on it and on every machine of its fleet",
            advice="Use tls:// with certificates in Dask's configuration, or accept the risk in a "
            "closed network with --fleet-unprotected.",
        )
    return where


def _needs_dask() -> None:
    from importlib.util import find_spec

    if find_spec("distributed") is None:
        raise MissingExtra(
            "a fleet needs Dask distributed, which is not installed",
            advice='Install it: pip install "tilewright[fleet]"',
        )
