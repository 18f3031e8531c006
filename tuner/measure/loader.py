"""Load an object file into this process: what a kernel becomes before it can be called."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schedules.errors import TilewrightError

from .native import host_target_machine

OPENMP_SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
OPENMP_LIBRARY = "libgomp.so.1"
_VECTOR_MATH_LIBRARY = "libmvec.so.1"


class LoadError(TilewrightError):
    """The object cannot be loaded here: not an object file, or a library is missing."""


class MissingLibraryError(LoadError):
    """A runtime library is not installed: says nothing about the candidate, and may change."""


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel in memory, callable at `address` as long as this value lives."""

    address: int
    engine: Any

    def caller(self, arguments: int) -> Callable[..., int]:
        """A Python callable of `arguments` addresses that returns the kernel's status."""
        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * arguments)(self.address)

    def function(self, name: str) -> int:
        """The address of another function of the object; LoadError if it has none so called."""
        address = int(self.engine.get_function_address(name))
        if not address:
            raise LoadError(f"the object has no function {name!r}")
        return address


def undefined_symbols(object_bytes: bytes) -> tuple[str, ...]:
    """Names an ELF64 little-endian object expects from elsewhere, sorted.

    LoadError if it is not one. Layout: the System V ABI's ELF chapter, sections and symbols.
    """
    try:
        if object_bytes[:6] != b"\x7fELF\x02\x01":
            raise LoadError(f"not a 64-bit ELF object: starts with {object_bytes[:6]!r}")
        (sections_at,) = struct.unpack_from("<Q", object_bytes, 40)
        entry_bytes, count = struct.unpack_from("<HH", object_bytes, 58)
        sections = [
            struct.unpack_from("<IIQQQQIIQQ", object_bytes, sections_at + i * entry_bytes)
            for i in range(count)
        ]
        names: set[str] = set()
        for section in sections:
            _, kind, _, _, offset, size, link, _, _, each = section
            if kind != 2:  # SHT_SYMTAB
                continue
            strings_at = sections[link][4]
            for at in range(offset, offset + size, each):
                name, _, _, index = struct.unpack_from("<IBBH", object_bytes, at)
                if index == 0 and name:  # SHN_UNDEF
                    end = object_bytes.index(b"\0", strings_at + name)
                    names.add(object_bytes[strings_at + name : end].decode())
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise LoadError(f"a broken ELF object: {error}") from error
    return tuple(sorted(names))


def openmp_environment(threads: int) -> dict[str, str]:
    """Environment of a process whose parallel kernels are timed with `threads` threads.

    Each thread stays on a core of its own: left to the scheduler, two may share one for a tenth of
    a second, each spinning while the other has work, and a kernel looks up to six times slower.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
    }


def load_openmp() -> None:
    """Bring libgomp into this process; MissingLibraryError says what to install."""
    import llvmlite.binding as llvm

    try:
        llvm.load_library_permanently(OPENMP_LIBRARY)
    except RuntimeError as error:
        raise MissingLibraryError(
            f"parallel kernels need {OPENMP_LIBRARY}, which was not found ({error}): install "
            "it (Debian and Ubuntu: apt install libgomp1, Fedora: dnf install libgomp) or tune "
            "with --threads 1"
        ) from error


def use_openmp(addresses: dict[str, int] | None = None) -> None:
    """Say what the OpenMP symbols of objects loaded from now on mean.

    None means libgomp's own; otherwise `addresses` maps each of `OPENMP_SYMBOLS`.
    """
    import llvmlite.binding as llvm

    if addresses is None:
        load_openmp()
        library = ctypes.CDLL(OPENMP_LIBRARY)
        addresses = {}
        for name in OPENMP_SYMBOLS:
            addresses[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    for name in OPENMP_SYMBOLS:
        llvm.add_symbol(name, addresses[name])


def load_object(object_bytes: bytes, symbol: str) -> LoadedKernel:
    """Load an object and find `symbol` in it.

    An object with OpenMP symbols needs `use_openmp` first. LoadError names what is missing;
    LLVM itself would abort the process.
    """
    import llvmlite.binding as llvm

    wanted = undefined_symbols(object_bytes)
    if any(name.startswith("_ZGV") for name in wanted):
        try:
            llvm.load_library_permanently(_VECTOR_MATH_LIBRARY)
        except RuntimeError as error:
            what = f"the kernel needs {_VECTOR_MATH_LIBRARY} of glibc: {error}"
            raise MissingLibraryError(what) from error
    # An engine owns its target machine: sharing one between two would free it twice. The first one
    # of a process makes the C library's functions known (memcpy), so it comes before the check.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), host_target_machine())
    missing = [name for name in wanted if not llvm.address_of_symbol(name)]
    if missing:
        raise LoadError(f"the object needs {', '.join(missing)}, which no loaded library provides")
    engine.add_object_file(llvm.ObjectFileRef.from_data(object_bytes))
    engine.finalize_object()
    return LoadedKernel(LoadedKernel(0, engine).function(symbol), engine)
