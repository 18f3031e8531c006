"""`tilewright serve`: the API in this process, the worker in another, one command."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

import uvicorn

from db import open_store
from service import database
from service.cli.output import Output
from service.errors import CannotServe
from service.exit_codes import ExitCode
from service.http.app import create_app
from service.jobs.supervisor import Supervisor
from service.jobs.worker import WorkerSettings
from service.logs import configure
from service.settings import Settings


def serve(settings: Settings, output: Output) -> int:
    """Serve until told to stop; the exit code. CannotServe, StoreError before it starts."""
    check_exposure(settings)
    check_folder(settings.measurer_folder)
    listener = bind(settings.host, settings.port)
    configure(as_json=settings.json_log)
    db_url = database.database_url(settings.db)
    with listener, open_store(db_url) as store:
        app = create_app(settings, store)
        server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(settings.drain_secs),
                timeout_keep_alive=30,
            ),
            app.state.service.stopping,
        )
        supervisor = Supervisor(
            WorkerSettings(
                store.url,
                settings.lease_secs,
                settings.poll_secs,
                json_log=settings.json_log,
            ),
            drain_secs=settings.drain_secs,
            on_hopeless=server.stop,
        )
        if settings.workers:
            supervisor.start()
        url = f"http://{_shown(settings.host)}:{listener.getsockname()[1]}"
        if output.as_json:
            output.print_json({"url": url, "pid": os.getpid(), "database": store.name})
            sys.stdout.flush()
        else:
            output.remark(f"Tilewright at {url} (API at {url}/docs), records in {store.name}")
            output.remark("Ctrl-C stops; jobs that are not finished go on at the next start.")
        try:
            server.run(sockets=[listener])
        finally:
            supervisor.stop()
    return supervisor.exit_code or ExitCode.DONE


def check_exposure(settings: Settings) -> None:
    """CannotServe for an address that others can reach, unless that is what is wanted."""
    if settings.loopback or settings.allow_unauthenticated:
        return
    raise CannotServe(
        f"--host {settings.host} can be reached from other machines, and this version knows no "
        "API keys yet: anybody could submit jobs",
        advice="Use --host 127.0.0.1 behind a proxy that authenticates, or accept the risk with "
        "--allow-unauthenticated.",
    )


def check_folder(folder: Path | None) -> None:
    """CannotServe if jobs are to read files of timings below what is no folder."""
    if folder is not None and not folder.is_dir():
        raise CannotServe(
            f"--measurer-folder {folder}: there is no such folder",
            advice="Make it, or name another.",
        )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; CannotServe says why there can be none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotServe(f"cannot listen on {host}: {error.strerror or error}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise CannotServe(f"cannot listen on {host}:{port}: {reason.lower()}") from error
    return listener


class _Server(uvicorn.Server):
    """Ends event streams and long polls at once when told to stop, so that draining is short."""

    def __init__(self, config: uvicorn.Config, stopping: threading.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stopping.set()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        # Kept from uvicorn's own list: it would raise the signal again after its shutdown, and
        # the worker would then not be drained.
        self.should_exit = True

    def stop(self) -> None:
        self.handle_exit(signal.SIGTERM, None)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
