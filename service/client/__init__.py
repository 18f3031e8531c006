"""The typed client of the service, for programs and build scripts: blocking and asynchronous.

    with Client() as client:  # TILEWRIGHT_URL and TILEWRIGHT_API_KEY, or the arguments
        job = client.submit("matmul:M=512,N=512,K=512", trials=64)
        job = client.wait(job.id)
        print(job.best)

`AsyncClient` has the same methods as coroutines. A call takes at most `timeout_secs`, including
retries. After connection failures, 429 and 503, the client retries after `Retry-After` or an
increasing random pause. Every submission has an `Idempotency-Key`, so a retry never makes a second
job. Importing this package loads no HTTP library.
"""

from __future__ import annotations

from tilewright.service.client.asynchronous import AsyncClient
from tilewright.service.client.blocking import Client
from tilewright.service.client.values import Best, Event, Job
from tilewright.service.errors import Refused, Unreachable

__all__ = ["AsyncClient", "Best", "Client", "Event", "Job", "Refused", "Unreachable"]
