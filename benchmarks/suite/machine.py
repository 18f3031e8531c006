"""Which machine figures come from, and whether anything else is running on it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewright.tuner.process.environment import steering

LOOK_SECS = 0.4
QUIET_SHARE = 0.08
"""Of one core: what an idle machine's own services use at most."""


def describe(target: dict[str, Any], root: Path) -> dict[str, Any]:
    """The machine, the versions, and the probes of this session (`target` is `target --json`)."""
    probes = target["probes"]
    return {
        "cpu": target["cpu"],
        "model": _cpu_model(),
        "vector_bits": target["vector_bits"],
        "avx512": target["vector_bits"] >= 512,
        "cores": target["cores"],
        "caches": target["caches"],
        "target_key": target["key"],
        "peak_gflops": probes["peak_gflops"]["f32"],
        "bandwidth_gbs": probes["bandwidth_gbs"],
        "parallel_region_secs": probes["parallel_region_secs"],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {
            name: _version(name) for name in ("numpy", "torch", "llvmlite", "xgboost-cpu")
        },
        "compiler": _first_line([os.environ.get("CC", "cc"), "--version"]),
        "commit": commit_of(root),
        "removed_variables": steering(os.environ),
    }


def busy_share(look_secs: float = LOOK_SECS) -> float:
    """How many cores other processes kept busy while this one slept, stolen time included."""
    before = _busy_ticks()
    time.sleep(look_secs)
    return max(_busy_ticks() - before, 0) / os.sysconf("SC_CLK_TCK") / look_secs


def wait_until_quiet(patience_secs: float, say: Callable[[str], None]) -> float:
    """Wait for the machine to be idle, `patience_secs` at most; the last busy share seen."""
    share = busy_share()
    end = time.monotonic() + patience_secs
    told = False
    while share > QUIET_SHARE and time.monotonic() < end:
        if not told:
            say(f"waiting: other processes use {share:.0%} of a core")
            told = True
        time.sleep(1.0)
        share = busy_share()
    if share > QUIET_SHARE:
        say(f"measuring although other processes use {share:.0%} of a core")
    return share


def _busy_ticks() -> int:
    """Ticks since boot that all cores spent on anything but waiting."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, soft, *steal = (int(f) for f in fields[:8])
    return user + nice + system + irq + soft + sum(steal)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def commit_of(root: Path) -> str:
    head = _first_line(["git", "-C", str(root), "rev-parse", "--short", "HEAD"])
    changed = _first_line(["git", "-C", str(root), "status", "--porcelain", "--", "*.py"])
    return f"{head} and changes" if changed else head


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.split("\n", 1)[0]
