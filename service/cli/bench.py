"""`bench`: times a kernel and its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.service.errors import UsageProblem

if TYPE_CHECKING:
    from tilewright.schedules.target import Target
    from tilewright.schedules.workload.workload import Workload
    from tilewright.service.answers.grades import Answer


def peer_names(text: str) -> list[str]:
    """Parse `numpy,torch` as a list. Raise UsageProblem if a name is unknown."""
    known = ("numpy", "torch", "default")
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UsageProblem(f"--against {name}: must be one of {', '.join(known)}")
    return names


def bench(
    workload: Workload,
    found: Answer,
    target: Target,
    *,
    peers: list[str],
    seconds: float,
    seed: int,
    bytes_behind_line: int = 0,
    compile_secs: float = 0.0,
) -> dict[str, Any]:
    """Time the kernel and its peers. Return the document that `bench --json` prints."""
    # Start-up: the measuring code takes long to load; usage errors are reported first.
    from tilewright.peers.bench import bench as run_bench

    result: dict[str, Any] = run_bench(
        workload,
        found.trace,
        target,
        against=peers,
        seconds=seconds,
        seed=seed,
        bytes_behind_line=bytes_behind_line,
        compile_secs=compile_secs,
    ).to_json()
    return result
