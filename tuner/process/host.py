"""The operating system's description of this machine: usable cores, caches and memory.

All functions read files below a `root`, so that tests can supply other machines. If a file is
missing or malformed, they use a default, because containers and unusual kernels hide much of /sys.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from tilewright.schedules.target import Cache

ROOT = Path("/")
# Levels 1 to 3 of an ordinary server core. They are assumed if the system reports nothing.
DEFAULT_CACHES = (
    Cache(bytes=32 << 10, ways=8),
    Cache(bytes=512 << 10, ways=8),
    Cache(bytes=16 << 20, ways=16, shared=True),
)
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_affinity() -> list[int]:
    """Return the CPUs that this process may run on, sorted."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def available_cores(root: Path = ROOT) -> int:
    """Return the number of CPUs in the affinity mask, or the cgroup quota if that is lower. It is
    at least 1."""
    quota = cgroup_cpus(root)
    cores = len(cpu_affinity())
    return cores if quota is None else max(1, min(cores, int(quota)))


def cgroup_cpus(root: Path = ROOT) -> float | None:
    """Return the lowest CPU quota of this process's cgroup and its parents, in CPUs. Return None if
    it is unlimited.

    The quota is read from cgroup v2 (`cpu.max`) and v1 (`cpu.cfs_quota_us` over
    `cpu.cfs_period_us`).
    """
    quotas = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        _, controllers, group = parts
        if controllers == "":
            mount = root / "sys/fs/cgroup"
        elif "cpu" in controllers.split(","):
            mount = root / "sys/fs/cgroup/cpu"
        else:
            continue
        group_path = Path(group.lstrip("/"))
        quotas += [_quota(mount / folder) for folder in (group_path, *group_path.parents)]
    known = [quota for quota in quotas if quota is not None]
    return min(known) if known else None


def _quota(folder: Path) -> float | None:
    words = _read(folder / "cpu.max").split() or [
        _read(folder / "cpu.cfs_quota_us").strip(),
        _read(folder / "cpu.cfs_period_us").strip(),
    ]
    try:
        quota, period = int(words[0]), int(words[1])
    except (ValueError, IndexError):  # "max", or an empty file
        return None
    return quota / period if quota > 0 and period > 0 else None


def data_caches(root: Path = ROOT) -> tuple[Cache, ...]:
    """Return the data and unified caches of one core, level 1 first.

    `shared` is True if other cores use the cache too. SMT siblings of one core do not count as
    other cores.
    """
    folder = root / "sys/devices/system/cpu/cpu0"
    siblings = _cpu_list(_read(folder / "topology/thread_siblings_list")) or {0}
    levels: dict[int, Cache] = {}
    for index in sorted((folder / "cache").glob("index[0-9]*")):
        level, size = _number(_read(index / "level")), parse_size(_read(index / "size"))
        if level is None or size is None or _read(index / "type").strip() == "Instruction":
            continue
        users = _cpu_list(_read(index / "shared_cpu_list"))
        levels[level] = Cache(
            bytes=size,
            ways=_number(_read(index / "ways_of_associativity")) or 8,
            line_bytes=_number(_read(index / "coherency_line_size")) or 64,
            shared=len(users | siblings) > len(siblings),
        )
    if 1 not in levels:
        return _sysconf_caches() or DEFAULT_CACHES
    return tuple(levels[level] for level in sorted(levels))


def _sysconf_caches() -> tuple[Cache, ...]:
    """Return the caches that glibc reports. For level n, the `sysconf` numbers of size, ways and
    line are 188 + 3 * (n - 1) and the next two."""
    if platform.libc_ver()[0] != "glibc":
        return ()
    caches = []
    for level in (1, 2, 3):
        first = 188 + 3 * (level - 1)
        try:
            size, ways, line = (os.sysconf(first + i) for i in range(3))
        except (OSError, ValueError):
            break
        if size <= 0:
            break
        caches.append(Cache(bytes=size, ways=ways or 8, line_bytes=line or 64, shared=level == 3))
    return tuple(caches)


def cpu_identity(root: Path = ROOT) -> str:
    """Return the kernel's description of one CPU, without fields that change (clock, load)."""
    keep = {
        "vendor_id", "model name", "cpu family", "model", "stepping", "flags", "Features",
        "CPU implementer", "CPU architecture", "CPU variant", "CPU part",
    }  # fmt: skip
    first = _read(root / "proc/cpuinfo").split("\n\n", 1)[0]
    lines = [line for line in first.splitlines() if line.split(":")[0].strip() in keep]
    return "\n".join([platform.machine(), *lines])


def distinct_cores_first(cpus: list[int], root: Path = ROOT) -> list[int]:
    """Return `cpus` in an order that has one CPU of every physical core before any SMT sibling."""
    seen: set[int] = set()
    firsts: list[int] = []
    others: list[int] = []
    for cpu in cpus:
        (others if cpu in seen else firsts).append(cpu)
        path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        seen |= _cpu_list(_read(path)) | {cpu}
    return firsts + others


def available_memory_bytes(root: Path = ROOT) -> int:
    """Return the available memory in bytes that the kernel reports, or 1 GiB if it reports none."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) << 10 if found else 1 << 30


def parse_size(text: str) -> int | None:
    """Return the bytes of a size in the notation of /sys, such as `32K`. Return None if it is
    invalid."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    return int(found[1]) * _SIZE_UNITS[found[2]] or None if found else None


def _cpu_list(text: str) -> set[int]:
    """Return the CPUs of a list in the notation of /sys, such as `0-3,8`."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if found:
            cpus |= set(range(int(found[1]), int(found[2] or found[1]) + 1))
    return cpus


def _number(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
