"""A complete service for test suites of other projects: API, worker, database, simulated machine.

    def test_our_build_asks_the_service(tilewright_service):
        job = tilewright_service.tune("matmul:M=64,N=64,K=64", trials=16)
        assert job.best["verified"]

Only the machine is simulated, so no special hardware is needed, and a run takes the same time on
every machine. Code under test uses `tilewright_service.url`. See `docs/mocked_timings.md`; the
fixture is in `tilewright.pytest_plugin`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tilewright.service import timeouts

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.service.client import Client, Job

# Start-up: the service is loaded when it is started.

MACHINE = "machine.json"


@dataclass(frozen=True)
class ServiceUnderTest:
    """A running service. `folder` holds its database and its simulated machine."""

    url: str
    client: Client
    store: Store
    folder: Path

    def use(self, machine: dict[str, Any]) -> ServiceUnderTest:
        """Use a simulated machine with these settings for later jobs."""
        (self.folder / MACHINE).write_text(json.dumps(machine))
        return self

    def tune(self, workload: str | dict[str, Any], *, trials: int = 16, **more: Any) -> Job:
        """Submit a job and wait for its end. `more` are arguments of `Client.submit`."""
        job = self.client.submit(workload, trials=trials, **more)
        return self.client.wait(job.id, timeout_secs=timeouts.TEST_SERVICE_SECS)


@contextmanager
def running_service(folder: Path) -> Iterator[ServiceUnderTest]:
    """Run the service in threads of this process, with all its files in `folder`."""
    import uvicorn

    from tilewright.db import open_store
    from tilewright.service.client import Client
    from tilewright.service.http.app import create_app
    from tilewright.service.jobs.run import JobContext
    from tilewright.service.jobs.worker import Worker
    from tilewright.service.settings import Settings

    settings = Settings(
        host="127.0.0.1",
        db=str(folder / "service.sqlite"),
        measurer_folder=folder,
        default_measurer=f"simulated:{MACHINE}",
        poll_secs=0.05,
    )
    (folder / MACHINE).write_text("{}")
    stop = threading.Event()
    with open_store(settings.db) as store:
        store.coordinate()
        worker = Worker(JobContext(store, settings.lease_secs, stop), "pytest", settings.poll_secs)
        app = create_app(settings, store)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
        threads = [
            threading.Thread(target=target, name=f"tilewright {name}", daemon=True)
            for name, target in (("worker", worker.work), ("api", server.run))
        ]
        for thread in threads:
            thread.start()
        try:
            end = time.monotonic() + timeouts.TEST_SERVICE_SECS
            while not server.started:
                if time.monotonic() > end or not threads[1].is_alive():
                    pytest.fail("the service did not start")
                time.sleep(0.01)
            url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            with Client(url) as client:
                yield ServiceUnderTest(url, client, store, folder)
        finally:
            app.state.service.stopping.set()
            server.should_exit = True
            stop.set()
            for thread in threads:
                thread.join(timeouts.TEST_SERVICE_SECS)
