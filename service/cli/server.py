"""`tilewright serve`: the API runs in this process, the worker in another."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from tilewright.db import Store, open_store
from tilewright.service import database
from tilewright.service.access.exposure import check_exposure
from tilewright.service.cli import systemd
from tilewright.service.cli.output import Output
from tilewright.service.errors import CannotServe, ExitCode
from tilewright.service.fleet import processes
from tilewright.service.http import connections
from tilewright.service.http.app import create_app
from tilewright.service.jobs.supervisor import Supervisor
from tilewright.service.jobs.worker import WorkerSettings
from tilewright.service.logs import configure
from tilewright.service.settings import Settings

WORKER_SHARE = 0.8
"""The fraction of the drain time after which a worker that has not ended is killed."""


def serve(settings: Settings, output: Output) -> int:
    """Serve until stopped; return the exit code. Raise CannotServe or StoreError if the service
    cannot start."""
    check_folder(settings.measurer_folder)
    listener = bind(settings.host, settings.port)
    configure(as_json=settings.json_log)
    db_url = database.database_url(settings.db or None)
    # A request waits for a lock at most as long as its client waits; the client then tries again.
    with (
        listener,
        open_store(db_url, timeout_secs=settings.store_secs) as store,
        fleet_processes(settings),
    ):
        check_exposure(settings, store)
        app = create_app(settings, store, lambda: supervisor.health() if settings.workers else None)
        state = app.state.service
        supervisor = Supervisor(
            WorkerSettings(
                store.url,
                settings.lease_secs,
                settings.poll_secs,
                json_log=settings.json_log,
                jobs_at_once=settings.jobs_at_once,
                standby=store.path is None,
                fleet=settings.fleet,
            ),
            drain_secs=settings.drain_secs * WORKER_SHARE,
            on_hopeless=lambda: server.stop(),  # noqa: PLW0108  # it is made below
            on_counts=state.metrics.worker_counts,
        )
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(int(settings.drain_secs * WORKER_SHARE), 1),
                **connections.options(settings),
            ),
            state.stopping,
            supervisor,
            settings.drain_secs,
        )
        if settings.workers:
            supervisor.start()
        _print_address(output, settings, listener, store)
        try:
            server.run(sockets=[listener])
        finally:
            supervisor.stop()
    return supervisor.exit_code or ExitCode.DONE


def _print_address(
    output: Output, settings: Settings, listener: socket.socket, store: Store
) -> None:
    url = f"http://{_shown(settings.host)}:{listener.getsockname()[1]}"
    if output.as_json:
        output.print_json({"url": url, "pid": os.getpid(), "database": store.name})
        sys.stdout.flush()
    else:
        output.remark(f"Tilewright at {url} (API at {url}/docs), records in {store.name}")
        if settings.fleet:
            output.remark(f"Fleet: tilewright worker --join {settings.fleet}")
        output.remark("Ctrl-C stops; unfinished jobs continue at the next start.")


@contextmanager
def fleet_processes(settings: Settings) -> Iterator[None]:
    """Run the fleet's scheduler, and this machine as a member, during the block. Raise CannotServe
    if they cannot start."""
    if not settings.fleet:
        yield
        return

    where = processes.check_exposure(settings.fleet, unprotected=settings.fleet_unprotected)
    with ExitStack() as stack:
        stack.enter_context(processes.scheduler(where))
        processes.wait_for_scheduler(where)
        if settings.fleet_machine:
            stack.enter_context(processes.local_machine(where))
        yield


def check_folder(folder: Path | None) -> None:
    """Raise CannotServe if `--measurer-folder` is not a folder."""
    if folder is not None and not folder.is_dir():
        raise CannotServe(
            f"--measurer-folder {folder}: no such folder",
            advice="Create it, or give another one.",
        )


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raise CannotServe with the reason if it cannot be opened."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = connections.Listener(family, kind, protocol)
    except OSError as error:
        raise CannotServe(f"cannot listen on {host}: {error.strerror or error}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise CannotServe(f"cannot listen on {host}:{port}: {reason.lower()}") from error
    return listener


class _Server(uvicorn.Server):
    """When it is stopped, this server ends event streams, long polls and the worker immediately.
    After `drain_secs` it ends even if requests are running; none of them has acknowledged
    anything."""

    def __init__(
        self,
        config: uvicorn.Config,
        stopping: threading.Event,
        supervisor: Supervisor,
        drain_secs: float,
    ) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._supervisor = supervisor
        self._drain_secs = drain_secs

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # The existing objects are permanent, so full garbage collections skip them.
        gc.collect()
        gc.freeze()
        systemd.notify(systemd.READY)
        self._alive = asyncio.create_task(systemd.stay_alive())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            systemd.notify(systemd.STOPPING)
            last = threading.Timer(self._drain_secs, self._leave)
            last.daemon = True
            last.start()
            # In another thread, because a signal handler must not wait for a lock.
            threading.Thread(target=self._supervisor.begin_stop, daemon=True).start()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        # uvicorn's handler would raise the signal again after its shutdown, before the worker is
        # drained.
        self.should_exit = True

    def stop(self) -> None:
        self.handle_exit(signal.SIGTERM, None)

    def _leave(self) -> None:
        self._supervisor.kill()
        sys.stderr.write("tilewright: requests still running after the drain are aborted\n")
        sys.stderr.flush()
        os._exit(self._supervisor.exit_code or ExitCode.DONE)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
