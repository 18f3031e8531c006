"""Linux calls that Python lacks: memory protection, parent-death signals, fault handlers."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import time
from functools import cache

PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_MAP_SHARED, _MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x01, 0x02, 0x20, 0x4000
_MAP_FIXED_NOREPLACE = 0x100000
_FIRST_SLOT, _SLOT_BYTES, _SLOTS = 0x2000_0000_0000, 4 << 30, 4096
_MADV_DONTFORK, _MADV_DOFORK, _MADV_HUGEPAGE, _MADV_POPULATE_WRITE = 10, 11, 14, 23
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_PR_SET_PDEATHSIG = 1
_SA_SIGINFO, _SA_ONSTACK = 4, 0x08000000
_MAP_FAILED = ctypes.c_void_p(-1).value


@cache
def libc() -> ctypes.CDLL:
    """Return the C library, with declared signatures."""
    lib = ctypes.CDLL(None, use_errno=True)
    size, void, c_int = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    lib.mmap.argtypes = [void, size, c_int, c_int, c_int, ctypes.c_long]
    lib.mmap.restype = void
    lib.munmap.argtypes = [void, size]
    lib.mprotect.argtypes = [void, size, c_int]
    lib.madvise.argtypes = [void, size, c_int]
    lib.memcmp.argtypes = [void, void, size]
    lib.mallopt.argtypes = [c_int, c_int]
    lib.sigaction.argtypes = [c_int, void, void]
    lib.sigaltstack.argtypes = [void, void]
    lib.prctl.argtypes = [c_int] + [ctypes.c_ulong] * 4
    return lib


def _fail(what: str) -> OSError:
    error = ctypes.get_errno()
    return OSError(error, f"{what}: {os.strerror(error)}")


def address_space_bytes() -> int:
    """Return the address space in bytes that this process uses now, as RLIMIT_AS counts it."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * PAGE_BYTES


def limit_address_space(byte_count: int) -> None:
    """Limit the address space of this process, unless an inherited limit is lower."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = byte_count if most == resource.RLIM_INFINITY else min(byte_count, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes, or 0 if it has just ended."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * PAGE_BYTES
    except (FileNotFoundError, ProcessLookupError):
        return 0


def reserve(size_bytes: int, *, shared: bool = False) -> int:
    """Return the address of `size_bytes` of inaccessible memory. It is private, or `shared` with
    children.

    The address is far from all mappings that the system places. Code refers to its constants by
    32-bit offsets, so gigabytes of guard pages must not separate the gaps into which LLVM loads
    code.
    """
    flags = (_MAP_SHARED if shared else _MAP_PRIVATE) | _MAP_ANONYMOUS | _MAP_NORESERVE
    for slot in range(_SLOTS):
        wanted = _FIRST_SLOT + slot * _SLOT_BYTES
        at = flags | _MAP_FIXED_NOREPLACE
        address = libc().mmap(wanted, size_bytes, PROT_NONE, at, -1, 0)
        if address == wanted:
            return wanted
        if address is not None and address != _MAP_FAILED:
            return int(address)  # before Linux 4.17 the address is only a hint
        if ctypes.get_errno() != errno.EEXIST:
            break  # the address space is smaller than usual
    address = libc().mmap(None, size_bytes, PROT_NONE, flags, -1, 0)
    if address is None or address == _MAP_FAILED:
        if ctypes.get_errno() == errno.ENOMEM:
            raise MemoryError(f"cannot reserve {size_bytes} bytes of address space")
        raise _fail(f"cannot reserve {size_bytes} bytes of address space")
    return int(address)


def release(address: int, size_bytes: int) -> None:
    """Unmap memory that `reserve` returned."""
    if libc().munmap(address, size_bytes):
        raise _fail("cannot unmap")


def protect(address: int, size_bytes: int, protection: int) -> None:
    """Set the protection of the pages from `address` on. Both numbers must be multiples of a
    page."""
    if size_bytes and libc().mprotect(address, size_bytes, protection):
        raise _fail("cannot change memory protection")


def prefer_huge_pages(address: int, size_bytes: int) -> None:
    """Request 2 MiB pages. A kernel that was built without them rejects this, which only costs
    speed."""
    libc().madvise(address, size_bytes, _MADV_HUGEPAGE)


def populate(address: int, size_bytes: int) -> None:
    """Map writable pages in one call, which takes a third of the time of a fault for each page.

    Kernels before Linux 5.14 reject this, and pages are then mapped when they are written.
    """
    libc().madvise(address, size_bytes, _MADV_POPULATE_WRITE)


def inherit(address: int, size_bytes: int, *, inherited: bool) -> None:
    """Set whether children that are forked later inherit these pages. Inherited pages are copied
    when they are written."""
    libc().madvise(address, size_bytes, _MADV_DOFORK if inherited else _MADV_DONTFORK)


def keep_freed_memory() -> None:
    """Make `malloc` keep all freed memory, because new pages cost more than most operations on
    them."""
    for parameter, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_ARENA_MAX, 1)):
        libc().mallopt(parameter, value)


def readable(fd: int, timeout_secs: float = 0.0) -> bool:
    """Return whether data can be read from a pipe, now or within `timeout_secs`."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout_secs * 1000))


def process_age_secs() -> float:
    """Return the seconds since this process started, or 0 if the kernel does not report them."""
    try:
        with open("/proc/self/stat") as stat:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0.0
    age_secs = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return max(age_secs, 0.0)


def preemptions() -> int:
    """Return how many times other processes have taken a core from a running thread of this
    process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def die_with_parent(parent_pid: int) -> None:
    """Make the kernel send SIGKILL to this process when the thread that started it ends.

    Exit immediately if the process `parent_pid` has already ended, because then no signal is sent.
    """
    libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


class _SigAction(ctypes.Structure):
    # glibc and musl have this layout on 64-bit Linux.
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _StackT(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("size_bytes", ctypes.c_size_t),
    )


def handle_faults(
    handler_address: int, signals: tuple[int, ...], stack: tuple[int, int] | None = None
) -> None:
    """Call the native `handler(int, siginfo_t *, void *)` on each of `signals`.

    The handler runs on `stack` (address, bytes), so that it also handles stack overflows. If
    `stack` is None, it runs on the stack of an earlier call of this function.
    """
    if stack is not None:
        alternative = _StackT(stack[0], 0, stack[1])
        if libc().sigaltstack(ctypes.byref(alternative), None):
            raise _fail("sigaltstack")
    action = _SigAction(handler=handler_address, flags=_SA_SIGINFO | _SA_ONSTACK)
    for number in signals:
        if libc().sigaction(number, ctypes.byref(action), None):
            raise _fail(f"sigaction({number})")
