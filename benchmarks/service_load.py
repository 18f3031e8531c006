"""How quickly the service answers: one question at a time, many at once, a thousand in one.

    python benchmarks/service_load.py [--secs S] [--workloads N] [--json]
    python benchmarks/service_load.py --untuned 100 [--clients 200] [--json]

Starts `tilewright serve --no-workers` on a database of N tuned workloads made for this run, and an
application of FastAPI that answers "{}", both over HTTP on this machine; clients run in processes
of their own, with kept connections. Prints answers a second, median and 99th percentile of the
latency, and the ratio to the bare application: the machine's share in the figures. Run it on a
quiet machine.

With `--untuned N`, on an empty database: so many clients at once ask for N workloads that nobody
tuned, each for one and until its answer is verified. Prints statuses, when the schedules were there
and when the kernels, and how often anything was prepared. It takes about 2.5 s a workload and CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

BARE = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
@app.get("/bare")
async def bare() -> dict[str, str]:
    return {}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What clients saw. `statuses` counts answers by status."""

    name: str
    connections: int
    answers: int
    answers_per_sec: float
    p50_ms: float
    p99_ms: float
    statuses: dict[str, int]


def request_bytes(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """One HTTP/1.1 request that keeps its connection."""
    told = {"Host": "localhost", **headers}
    if body:
        told |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of the next answer; bodies have a length here."""
    head = await reader.readuntil(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    length = int(headers.get("content-length", "0"))
    return int(status.split()[1]), await reader.readexactly(length), headers


async def _client(port: int, requests: list[bytes], first: int, until: float) -> list[Any]:
    """Ask in turn until the time is over; (seconds, status) of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seen = []
    number = first
    while time.perf_counter() < until:
        writer.write(requests[number % len(requests)])
        start = time.perf_counter()
        status, _, _ = await _answer(reader)
        seen.append((time.perf_counter() - start, status))
        number += 1
    writer.close()
    return seen


async def _clients(port: int, requests: list[bytes], connections: int, secs: float) -> list[Any]:
    until = time.perf_counter() + secs
    step = max(len(requests) // connections, 1)
    clients = (_client(port, requests, i * step, until) for i in range(connections))
    return list(await asyncio.gather(*clients))


def client_process() -> None:
    """The clients, in a process of their own: the plan on standard input, what they saw on
    standard output."""
    plan = json.load(sys.stdin)
    requests = [text.encode("latin-1") for text in plan["requests"]]
    seen = asyncio.run(_clients(plan["port"], requests, plan["connections"], plan["secs"]))
    json.dump(seen, sys.stdout)


def load(name: str, port: int, requests: list[bytes], connections: int, secs: float) -> Load:
    """What `connections` clients saw in `secs` seconds, after a tenth of that to warm up."""
    for duration in (secs / 10, secs):
        plan = {
            "port": port,
            "requests": [request.decode("latin-1") for request in requests],
            "connections": connections,
            "secs": duration,
        }
        done = subprocess.run(
            [sys.executable, __file__, "--client"],
            input=json.dumps(plan),
            capture_output=True,
            text=True,
            check=True,
        )
    seen = [pair for one in json.loads(done.stdout) for pair in one]
    took = sorted(duration for duration, _ in seen)
    statuses: dict[str, int] = {}
    for _, status in seen:
        statuses[str(status)] = statuses.get(str(status), 0) + 1
    return Load(
        name,
        connections,
        len(seen),
        len(seen) / secs,
        1e3 * took[len(took) // 2],
        1e3 * took[min(len(took) - 1, int(0.99 * len(took)))],
        statuses,
    )


def fill(db: Path, count: int) -> tuple[list[dict[str, Any]], list[str], str]:
    """A database with the best of `count` products, files included; documents, keys, target key."""
    from dataclasses import replace

    from tilewright.db import open_store
    from tilewright.db.values.records import ArtefactFile
    from tilewright.schedules.record import MeasureResult, MeasureStatus, TuningRecord
    from tilewright.service.jobs.tuning import register
    from tilewright.service.resolve import targets, toolchains, workloads
    from tilewright.tuner.search.default import default_trace

    target = targets.target_of("native", 1)
    sizes = [f"M={64 + n % 40},N={64 + n // 40},K=64" for n in range(count)]
    made = [workloads.workload_of(f"matmul:{one}") for one in sizes]
    documents = [workload.to_json() for workload in made]
    keys = [workload.key for workload in made]
    trace = None
    with open_store(str(db)) as store:
        for number, workload in enumerate(made):
            if store.best(workload.key, target.key) is not None:
                continue
            if trace is None:
                trace = default_trace(workload, target).to_json()
            register(store, workload, target)
            secs = 1e-5 * (1 + number / count)
            record = TuningRecord(
                workload.key,
                target.key,
                1,
                trace,
                MeasureResult(MeasureStatus.OK, (secs,) * 30, secs),
                replace(toolchains.toolchain(), llvm="22.1.0"),
                seed=0,
                trial=number,
                verified_level="full",
            )
            store.add([record])
            store.promote(record)
            files = [
                ArtefactFile(kind, f"matmul.{end}", "text/plain", f"{kind} {number}".encode())
                for kind, end in (("object", "o"), ("header", "h"), ("llvm", "ll"))
            ]
            store.add_artefacts(record.key, files)
    return documents, keys, target.key


@contextmanager
def process(command: list[str], port: int, environment: dict[str, str]) -> Iterator[int]:
    """A server that listens at `port`, ended at the end."""
    server = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.05)
        yield port
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, request: bytes) -> tuple[int, bytes, dict[str, str]]:
    """One answer, on a connection of its own."""

    async def once() -> tuple[int, bytes, dict[str, str]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await _answer(reader)
        writer.close()
        return answer

    return asyncio.run(once())


def measure(secs: float, count: int, kept: Path | None) -> list[Load]:
    """Every figure, on servers started for it; the database is made in `kept`, or goes at the
    end."""
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = str(kept or temporary)
        documents, keys, target = fill(Path(folder) / "load.sqlite", count)
        bare = free_port()
        with process([sys.executable, "-c", BARE, str(bare)], bare, {}):
            for connections in (1, 8, 64):
                request = request_bytes("GET", "/bare", {})
                found.append(load("bare", bare, [request], connections, secs))
        port = free_port()
        with process(serve_command(port, folder), port, {}):
            paths = [f"/v1/best/{key}/{target}" for key in keys]
            get = [request_bytes("GET", path, {}) for path in paths]
            found += [load("best, one key", port, get[:1], many, secs) for many in (1, 8, 64)]
            found.append(load("best, all keys", port, get, 8, secs))
            etag = ask(port, get[0])[2]["etag"]
            same = request_bytes("GET", paths[0], {"If-None-Match": etag})
            found.append(load("best, 304", port, [same], 8, secs))
            native = {"target": target}
            for name, asked in (("documents", documents), ("keys", keys)):
                body = json.dumps({"workloads": asked[:1000], **native}).encode()
                post = request_bytes("POST", "/v1/best:lookup", {}, body)
                found.append(load(f"lookup of {len(asked[:1000])} {name}", port, [post], 1, secs))
    return found


async def _untuned_client(port: int, request: bytes, start: float) -> dict[str, Any]:
    """Ask until the answer is as good as it gets: seconds to a schedule, and to all of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses: list[int] = []
    chosen = None
    while True:
        writer.write(request)
        status, body, headers = await _answer(reader)
        statuses.append(status)
        item: dict[str, Any] = json.loads(body)["items"][0] if status == 200 else {"found": False}
        if item["found"]:
            chosen = chosen or time.perf_counter() - start
            if not item["pending"]:
                break
        await asyncio.sleep(min(float(headers.get("retry-after", "1")), 5.0))
    writer.close()
    done = time.perf_counter() - start
    verified = item["answer"]["verified"]
    return {"statuses": statuses, "chosen": chosen, "done": done, "verified": verified}


def measure_untuned(count: int, clients: int) -> dict[str, Any]:
    """What `clients` clients at once saw of `count` workloads that nobody had tuned."""
    from tilewright.db import open_store

    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with process(serve_command(port, folder), port, {}):
            requests = [
                request_bytes(
                    "POST",
                    "/v1/best:lookup",
                    {},
                    json.dumps(
                        {"workloads": [f"matmul:M={8 + n},N=16,K=16"], "min_grade": "default"}
                    ).encode(),
                )
                for n in range(count)
            ]

            async def all_clients() -> list[dict[str, Any]]:
                start = time.perf_counter()
                asked = (requests[n % count] for n in range(clients))
                return await asyncio.gather(*(_untuned_client(port, r, start) for r in asked))

            seen = asyncio.run(all_clients())
        with open_store(f"{folder}/load.sqlite") as store:
            jobs = len(store.list_jobs(page_size=1000).items)
            blobs, problems = store.counts().blobs, len(store.check())
    statuses = [status for one in seen for status in one["statuses"]]
    return {
        "clients": clients,
        "workloads": count,
        "statuses": {str(status): statuses.count(status) for status in sorted(set(statuses))},
        "verified": sum(one["verified"] for one in seen),
        "last_schedule_secs": max(one["chosen"] for one in seen),
        "last_kernel_secs": max(one["done"] for one in seen),
        "tickets": jobs,
        "files": blobs,
        "check_findings": problems,
    }


def serve_command(port: int, folder: str) -> list[str]:
    """`tilewright serve` on the database of this run."""
    return [
        sys.executable, "-c", "from tilewright.service.cli import main; main()",
        "serve", "--no-workers", "--json", "--port", str(port), "--db", f"{folder}/load.sqlite",
    ]  # fmt: skip


def table(found: list[Load]) -> str:
    """The figures as a table; "of bare" is against as many connections."""
    bare = {one.connections: one.answers_per_sec for one in found if one.name == "bare"}
    lines = [
        "| | connections | answers/s | of bare | p50 ms | p99 ms | statuses |",
        "|---|" * 1 + "---|" * 6,
    ]
    for one in found:
        share = one.answers_per_sec / bare[one.connections]
        lines.append(
            f"| {one.name} | {one.connections} | {one.answers_per_sec:.0f} | {share:.2f} | "
            f"{one.p50_ms:.2f} | {one.p99_ms:.2f} | {one.statuses} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--secs", type=float, default=3.0, help="of each load")
    parser.add_argument("--workloads", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keep the database here, or use the one there")
    parser.add_argument("--untuned", type=int, default=0, metavar="N")
    parser.add_argument("--clients", type=int, default=200, metavar="N")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        client_process()
        return
    if options.untuned:
        print(json.dumps(measure_untuned(options.untuned, options.clients), indent=2))
        return
    found = measure(options.secs, options.workloads, options.folder)
    print(json.dumps([asdict(one) for one in found], indent=2) if options.json else table(found))


if __name__ == "__main__":
    main()
