"""`doctor`: properties of this machine that disturb measurements or prevent Tilewright from
working."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tilewright.schedules.errors import TilewrightError
from tilewright.service import database as stored
from tilewright.service import timeouts
from tilewright.service.problems import problem_of
from tilewright.tuner.process.environment import steering

# Start-up: each check loads what it needs.

NOISY_SPREAD = 0.05


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. `status` is "ok", "warn" (measurements may be disturbed) or "fail" (does
    not work)."""

    name: str
    status: str
    detail: str
    advice: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def examine(db_url: str | None, *, clock: Callable[[], float] = time.perf_counter) -> list[Finding]:
    """Return the results of all checks."""
    return [
        python(),
        *libraries(),
        double_xgboost(),
        openmp(),
        cores(),
        governor(),
        steal(),
        library_settings(dict(os.environ)),
        noise(clock),
        probes(),
        database(db_url),
    ]


def python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        return Finding("python", "warn", found, "Only Linux on x86-64 is tested.")
    return Finding("python", "ok", found)


def libraries() -> list[Finding]:
    """Check the versions of the libraries that tuning needs."""
    findings = []
    for name in ("numpy", "llvmlite", "sqlalchemy"):
        found = _version(name)
        findings.append(
            Finding(name, "ok", found)
            if found
            else Finding(name, "fail", "not installed", 'pip install "tilewright[tune]"')
        )
    model = _version("xgboost-cpu") or _version("xgboost")
    findings.append(
        Finding("xgboost", "ok", model)
        if model
        else Finding(
            "xgboost",
            "warn",
            "not installed: the cost model cannot learn",
            'pip install "tilewright[tune]"',
        )
    )
    return findings


def double_xgboost() -> Finding:
    """Check for `xgboost` and `xgboost-cpu`, which overwrite each other's files."""
    if _version("xgboost") and _version("xgboost-cpu"):
        return Finding(
            "xgboost twice",
            "warn",
            "both xgboost and xgboost-cpu are installed; they overwrite each other's files",
            "pip uninstall xgboost xgboost-cpu, then install one of them",
        )
    return Finding("xgboost twice", "ok", "no")


def openmp() -> Finding:
    """Check for GNU's OpenMP runtime, which parallel kernels need."""
    name = ctypes.util.find_library("gomp") or "libgomp.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return Finding(
            "libgomp",
            "warn",
            "not found: kernels of more than one thread cannot run",
            "Debian, Ubuntu: apt install libgomp1; Fedora: dnf install libgomp",
        )
    return Finding("libgomp", "ok", name)


def cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0]
    found = f"{usable} usable of {os.cpu_count()}, load {load:.1f}"
    if usable is not None and load > usable:
        return Finding("cores", "warn", found, "Other programs are running and disturb timings.")
    return Finding("cores", "ok", found)


def governor(
    path: Path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
) -> Finding:
    """Check the frequency governor, if the machine exposes it."""
    try:
        found = path.read_text().strip()
    except OSError:
        return Finding("governor", "ok", "not readable here (usual in a virtual machine)")
    if found != "performance":
        return Finding("governor", "warn", found, "cpupower frequency-set -g performance")
    return Finding("governor", "ok", found)


def steal(path: Path = Path("/proc/stat")) -> Finding:
    """Check the time since boot that the hypervisor gave to other virtual machines."""
    try:
        ticks = [int(field) for field in path.read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return Finding("steal", "ok", "not readable here")
    if len(ticks) < 8:
        return Finding("steal", "ok", "not reported by this kernel")
    share = ticks[7] / max(sum(ticks[:8]), 1)
    if share > 0.02:
        return Finding("steal", "warn", f"{share:.1%} of the time since boot", "A busy host.")
    return Finding("steal", "ok", f"{share:.1%} of the time since boot")


def library_settings(environment: dict[str, str]) -> Finding:
    """Check for environment variables that change how NumPy, PyTorch and their libraries
    compute."""

    found = ", ".join(f"{name}={value}" for name, value in steering(environment).items())
    if found:
        return Finding(
            "library settings",
            "warn",
            found,
            "They may slow down your programs; tune and bench ignore them.",
        )
    return Finding("library settings", "ok", "none")


def noise(clock: Callable[[], float]) -> Finding:
    """Measure the variation of a small fixed computation for `NOISE_MEASUREMENT_SECS`."""
    samples: list[float] = []
    end = clock() + timeouts.NOISE_MEASUREMENT_SECS
    while clock() < end or len(samples) < 20:
        start = clock()
        sum(range(20_000))
        samples.append(clock() - start)
        if len(samples) >= 20_000:
            break
    samples.sort()
    median, low = samples[len(samples) // 2], samples[0]
    spread = (median - low) / low if low > 0 else 0.0
    found = f"the time of a fixed computation varies by {spread:.1%} (median over fastest)"
    if spread > NOISY_SPREAD:
        return Finding("noise", "warn", found, "Stop other programs, or expect wider intervals.")
    return Finding("noise", "ok", found)


def probes() -> Finding:
    """Check whether this machine was probed without other load."""
    from tilewright.tuner.machine.native_target import native_target

    try:
        known = native_target(probe=False).probes
    except ImportError as error:  # `libraries` reports the missing package
        return Finding("probes", "warn", f"cannot be read: {error}")
    if not known.peak_gflops:
        return Finding("probes", "ok", "not measured yet; the first `tune` or `target` does")
    if known.doubtful:
        return Finding(
            "probes",
            "warn",
            "measured under other load; the bound is not used for early stopping",
            "tilewright target --fresh, without other load; the next run also probes again",
        )
    return Finding("probes", "ok", "measured without other load")


def database(url: str | None) -> Finding:
    """Check whether the database can be opened, without creating it."""
    try:
        detail = stored.database_state(url)
    except TilewrightError as error:
        return Finding("database", "fail", str(error), problem_of(error).advice)
    except ImportError as error:  # `libraries` reports the missing package
        return Finding("database", "fail", f"cannot be opened: {error}")
    return Finding("database", "ok", detail)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
