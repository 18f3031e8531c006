"""How long an owner's small job takes beside jobs of another owner that claim little and take long.

    python benchmarks/fair_turns.py [--hostile 4] [--within 30]

A service is started with keys for two owners. The first submits jobs that ask for one trial and
five seconds, of computations whose references, compilations or kernels take long; two seconds
later the second submits a job of four trials. Told is when that one ended, and how the others did.
The machine is probed before. Exit code 1 if it took longer than `--within` seconds, or failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.kill_service import COMMAND, Service  # noqa: E402
from tilewright.service.client import Client  # noqa: E402

HOSTILE: tuple[dict[str, Any] | str, ...] = (
    {
        "expr": "Y[i,j] += where(k <= j, X[i,k]*W[k,j], 0.0)",
        "tensors": {"X": "f32[1024,1024]", "W": "f32[1024,1024]"},
    },
    {"expr": "Y[0] max= f32(i)*X[0]", "tensors": {"X": "f32[1]"}, "ranges": {"i": 1 << 28}},
    "matmul:M=4096,N=4096,K=4096",
    {
        "expr": "Y[t] += where(t-128*f >= 0, where(t-128*f < 512,"
        " R[f,k]*sin(0.0122718463*f32(k)*f32(t-128*f)), 0.0), 0.0)",
        "tensors": {"R": "f32[200,257]"},
        "ranges": {"t": 25600},
    },
)
WORKLOAD = "matmul:M=256,N=256,K=256"
PATIENCE_SECS = 300.0


def key(db: str, owner: str) -> str:
    """A new key of `owner` that may submit and read."""
    words = ["keys", "create", "--scopes", "submit,read", "--owner", owner, "--db", db, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], cwd=ROOT, capture_output=True, check=True
    )
    return str(json.loads(done.stdout)["key"])


def run(hostile: int, folder: Path) -> dict[str, Any]:
    """How long the second owner's job took, and how every job ended."""
    db = f"sqlite:///{folder}/t.sqlite"
    keys = {owner: key(db, owner) for owner in ("first", "second")}
    service = Service(db, folder)
    with ExitStack() as stack:
        stack.callback(service.stop)
        first, second = (
            stack.enter_context(Client(service.url, api_key=keys[owner], timeout_secs=60.0))
            for owner in ("first", "second")
        )
        jobs = [
            first.submit(HOSTILE[n % len(HOSTILE)], trials=1, seconds=5.0, seed=n // len(HOSTILE))
            for n in range(hostile)
        ]
        time.sleep(2.0)
        start = time.monotonic()
        ended = second.wait(second.submit(WORKLOAD, trials=4).id, timeout_secs=PATIENCE_SECS)
        took_secs = time.monotonic() - start
        others = [first.wait(job.id, timeout_secs=PATIENCE_SECS) for job in jobs]
        return {
            "took_secs": round(took_secs, 2),
            "ended": str(ended.state),
            "all_over_secs": round(time.monotonic() - start, 2),
            "others": [str(job.state) for job in others],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hostile", type=int, default=4, help="jobs of the first owner")
    parser.add_argument("--within", type=float, default=30.0, help="seconds")
    given = parser.parse_args()
    subprocess.run([sys.executable, "-c", COMMAND, "target", "--json"], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        found = run(given.hostile, Path(folder))
    print(json.dumps(found))
    return 0 if found["took_secs"] <= given.within and found["ended"] == "SUCCEEDED" else 1


if __name__ == "__main__":
    sys.exit(main())
