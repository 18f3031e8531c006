"""This machine as a `Target`. Its back end detects and probes it, and the result is cached on disk.

Callers use `native_target`. It stores the description and the probes in a small JSON file. So a
start with a cached file neither imports LLVM nor measures. `load_target` reads the argument of
`--target`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Probes, Target

from .. import timeouts
from ..codegen.version import llvmlite_version
from ..process.control import Control
from ..process.host import available_cores, cpu_affinity, cpu_identity
from .probe_merging import merged_probes
from .x86_levels import LEVELS, is_level, level_target

CACHE_FORMAT = 5

_MAX_FILE_BYTES = 1 << 20


def probe_target(
    target: Target, within_secs: float = math.inf, control: Control | None = None
) -> Probes:
    """Call `probe.probe_target`. Its module is imported on the first call."""
    from . import probe  # Start-up: a warm start does not probe

    return probe.probe_target(target, within_secs, control)


Prober = Callable[[Target], Probes]
HurriedProber = Callable[[Target, float], Probes]
"""The type of functions that probe a target within a time limit in seconds."""


def detect() -> Target:
    """Return this machine as the first back end detects it, without probes, for kernels of one
    thread."""
    from ..backend.registry import BACKENDS  # Start-up: a warm start reads a file instead

    return BACKENDS[0].detect()


def native_target(
    threads: int = 1,
    *,
    cache_dir: Path | None = None,
    probe: bool = True,
    fresh: bool = False,
    clock: Callable[[], float] = time.time,
    prober: Prober = probe_target,
) -> Target:
    """Return this machine, for kernels of up to `threads` threads. It has its probes if `probe`.

    The description is cached in `cache_dir` (default: the XDG cache folder). There is one file for
    each combination of host, CPU, affinity, core limit and llvmlite. An unreadable file is ignored.
    Probes older than a week are repeated, which takes about a second. `fresh` also repeats the
    detection. Probes of a busy machine are doubtful. They are repeated soon, and the best rates of
    both are kept. Raise TargetError if `threads` exceeds the number of cores, or if probing failed.
    """
    path = _cache_file(cache_dir)
    cached = None if fresh else _read_cache(path)
    entry = cached or _CachedTarget(detect(), probed_at=None)
    now = clock()
    if probe and not entry.has_probes(now):
        entry = entry.probed(now, prober)
    if entry is not cached:
        _write_cache(path, entry)
    return entry.target.with_threads(threads)


def unprobed_target(threads: int = 1, *, cache_dir: Path | None = None) -> Target:
    """Return this machine without its probes. Searches with mocked timings use it, because they
    must not depend on probes."""
    return replace(native_target(threads, cache_dir=cache_dir, probe=False), probes=Probes())


def load_target(
    spec: str,
    threads: int | None = None,
    *,
    cache_dir: Path | None = None,
    probe: bool = True,
    within_secs: float = math.inf,
    control: Control | None = None,
) -> Target:
    """Return the target that `spec` names: `native`, a level of x86-64, or a file with a target's
    JSON.

    If `threads` is None, the number of threads is that of the file, or one for `native`. Raise
    TargetError if there is no such target. Raise ProbingLateError, a subclass, if probing took
    longer than `within_secs`. Raise MeasurementAborted if `control` aborts.
    """
    if spec == "native":
        prober = partial(probe_target, within_secs=within_secs, control=control)
        return native_target(
            1 if threads is None else threads, cache_dir=cache_dir, probe=probe, prober=prober
        )
    if is_level(spec):
        return level_target(spec, 1 if threads is None else threads)
    target = _read_target_file(Path(spec))
    return target if threads is None else target.with_threads(threads)


def _read_target_file(path: Path) -> Target:
    wanted = f"--target takes 'native', {', '.join(LEVELS)} or a file as in examples/targets"
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TargetError(f"{path}: cannot be read ({error.strerror}); {wanted}") from error
    if len(text) > _MAX_FILE_BYTES:
        raise TargetError(f"{path}: larger than {_MAX_FILE_BYTES} bytes; {wanted}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TargetError(f"{path}: not JSON ({error}); {wanted}") from error
    if not isinstance(document, dict):
        raise TargetError(f"{path}: a JSON {type(document).__name__}, not an object; {wanted}")
    try:
        return Target.from_json(document)
    except TargetError as error:
        raise TargetError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True)
class _CachedTarget:
    """A cached description of this machine."""

    target: Target
    probed_at: float | None
    """The time of the probes in seconds since 1970, or None if there are no probes."""

    def has_probes(self, now: float) -> bool:
        return self._since(
            now,
            timeouts.MAX_DOUBTFUL_PROBE_AGE_SECS if self.doubtful else timeouts.MAX_PROBE_AGE_SECS,
        )

    @property
    def doubtful(self) -> bool:
        return self.target.probes.doubtful

    def recent(self, now: float, recent_secs: float) -> bool:
        """Return whether the probes are reliable and at most `recent_secs` old."""
        return not self.doubtful and self._since(now, recent_secs)

    def probed(self, now: float, prober: Prober) -> _CachedTarget:
        """Return the machine with new probes. They are merged with its earlier probes unless those
        are too old."""
        probes = prober(self.target)
        if self._since(now, timeouts.MAX_PROBE_AGE_SECS):
            probes = merged_probes(self.target, self.target.probes, probes)
        return _CachedTarget(replace(self.target, probes=probes), probed_at=now)

    def _since(self, now: float, age_secs: float) -> bool:
        # Probes with a date in the future count as old. The clock was set back.
        return self.probed_at is not None and 0 <= now - self.probed_at <= age_secs


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """The machine on which a session measures. It implements
    `session.roofline_bound.MeasuringMachine`."""

    cache_dir: Path | None = None
    clock: Callable[[], float] = time.time
    prober: HurriedProber = probe_target

    def probe_again(self, target: Target, recent_secs: float, within_secs: float) -> Target | None:
        """Return `target` with the best rates of its probes and new probes, or None if it cannot be
        probed.

        It cannot be probed if it is not this machine, or if `within_secs` is too short. Cached
        probes are used if they are at most `recent_secs` old. Raise TargetError if probing failed
        or took longer than `within_secs`.
        """
        path = _cache_file(self.cache_dir)
        now = self.clock()
        entry = self._entry(path, target)
        if entry is None:
            return None
        if not entry.recent(now, recent_secs):
            if within_secs < timeouts.MIN_PROBING_SECS:
                return None
            entry = entry.probed(now, lambda target: self.prober(target, within_secs))
            _write_cache(path, entry)
        return replace(target, probes=merged_probes(target, target.probes, entry.target.probes))

    def cache_probes(self, target: Target) -> None:
        """Cache probes that were corrected by a kernel. They are marked as doubtful, so the next
        run probes again."""
        path = _cache_file(self.cache_dir)
        entry = self._entry(path, target)
        if entry is not None and entry.probed_at is not None:
            probes = merged_probes(target, entry.target.probes, target.probes)
            _write_cache(path, replace(entry, target=replace(entry.target, probes=probes)))

    def _entry(self, path: Path, target: Target) -> _CachedTarget | None:
        entry = _read_cache(path) or _CachedTarget(detect(), probed_at=None)
        alike = entry.target.with_threads(1).key == replace(target, threads=1).key
        return entry if alike else None


def _cache_file(cache_dir: Path | None) -> Path:
    if cache_dir is None:
        from platformdirs import user_cache_path

        cache_dir = user_cache_path("tilewright")
    identity = {
        "format": CACHE_FORMAT,
        "host": platform.node(),
        "cpu": cpu_identity(),
        "affinity": cpu_affinity(),
        "cores": available_cores(),
        "llvmlite": llvmlite_version() or "none",
    }
    digest = hashlib.sha256(canonical_bytes(identity)).hexdigest()
    return cache_dir / "targets" / f"{digest[:32]}.json"


def _read_cache(path: Path) -> _CachedTarget | None:
    try:
        document: Any = json.loads(path.read_bytes())
        probed_at = document["probed_at"]
        target = Target.from_json(document["target"])
        return _CachedTarget(target, None if probed_at is None else float(probed_at))
    except (OSError, ValueError, KeyError, TypeError, TargetError):
        # The file is absent, incomplete or from another version. Detecting again is always correct.
        return None


def _write_cache(path: Path, entry: _CachedTarget) -> None:
    """Write the cache file atomically. Without write permission nothing is written, and the next
    run probes again."""
    document = {"probed_at": entry.probed_at, "target": entry.target.to_json()}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
