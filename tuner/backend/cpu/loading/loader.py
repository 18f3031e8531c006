"""Loading an object file into this process."""

# Start-up: only the functions that load an object import LLVM.

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...protocol import LoadError
from .elf import undefined_symbols, writable_memory

OPENMP_SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
OPENMP_LIBRARY = "libgomp.so.1"
_VECTOR_MATH_LIBRARY = "libmvec.so.1"
_VECTOR_MATH_PREFIX = "_ZGV"
# LLVM emits calls of these functions for loops that copy or fill. Position-independent code uses
# the table. They have no state that outlives a call.
_STATELESS = frozenset({"memcpy", "memmove", "memset", "memcmp", "_GLOBAL_OFFSET_TABLE_"})


class MissingLibraryError(LoadError):
    """A runtime library is not installed. The candidate is not wrong."""


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel in memory. It can be called at `address` as long as this value lives."""

    address: int
    engine: Any

    def caller(self, arguments: int) -> Callable[..., int]:
        """Return a Python function that calls the kernel with `arguments` addresses and returns its
        status."""
        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * arguments)(self.address)

    def function(self, name: str) -> int:
        """Return the address of another function of the object. Raise LoadError if the object lacks
        it."""
        address = int(self.engine.get_function_address(name))
        if not address:
            raise LoadError(f"the object has no function {name!r}")
        return address


def load_openmp() -> None:
    """Load libgomp into this process. Raise MissingLibraryError, whose text says what to install,
    if it is missing."""
    import llvmlite.binding as llvm

    try:
        llvm.load_library_permanently(OPENMP_LIBRARY)
    except RuntimeError as error:
        raise MissingLibraryError(
            f"parallel kernels need {OPENMP_LIBRARY}, which was not found ({error}): install "
            "it (Debian and Ubuntu: apt install libgomp1, Fedora: dnf install libgomp) or tune "
            "with --threads 1"
        ) from error


@cache
def serial_after_fork() -> None:
    """Make children that are forked from now on run OpenMP regions with one thread.

    A child has none of the threads of its parent's libgomp pool, and its first region would wait
    for them forever. Call this function before this process enters its first region.
    """
    library = ctypes.CDLL(OPENMP_LIBRARY)
    os.register_at_fork(after_in_child=lambda: library.omp_set_max_active_levels(0))


def use_openmp(addresses: dict[str, int] | None = None) -> None:
    """Bind the OpenMP symbols of objects that are loaded later to `addresses`, or to libgomp if it
    is None.

    `addresses` has an entry for each of `OPENMP_SYMBOLS`.
    """
    import llvmlite.binding as llvm

    addresses = openmp_addresses() if addresses is None else addresses
    for name in OPENMP_SYMBOLS:
        llvm.add_symbol(name, addresses[name])


def openmp_addresses() -> dict[str, int]:
    """Load libgomp and return the addresses of its functions `OPENMP_SYMBOLS`. Raise
    MissingLibraryError if it is missing."""
    load_openmp()
    library = ctypes.CDLL(OPENMP_LIBRARY)
    return {
        name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        for name in OPENMP_SYMBOLS
    }


def wants_openmp(object_bytes: bytes) -> bool:
    """Return whether an object enters parallel regions. If so, call `use_openmp` before loading
    it."""
    wanted = undefined_symbols(object_bytes)
    return any(name in wanted for name in OPENMP_SYMBOLS)


def refuse_state(object_bytes: bytes) -> tuple[str, ...]:
    """Return the undefined symbols of the object. Raise LoadError if it has state that outlives a
    call or is shared between calls.

    Such state is writable memory of the object, or a call of a function that may have such memory.
    A kernel without state writes only its arguments and its stack. Therefore it is re-entrant, and
    checks of that memory find every data race.
    """
    kept = writable_memory(object_bytes)
    if kept:
        raise LoadError(f"the object has {kept}: concurrent calls would share it")
    wanted = undefined_symbols(object_bytes)
    foreign = [
        name
        for name in wanted
        if name not in OPENMP_SYMBOLS
        and name not in _STATELESS
        and not name.startswith(_VECTOR_MATH_PREFIX)
    ]
    if foreign:
        raise LoadError(f"the object needs {', '.join(foreign)}, which no kernel may call")
    return wanted


def empty_engine() -> Any:
    """Return an LLVM engine without code, for one call of `load_object`.

    Creating it takes longer than loading a kernel. Forked children inherit an engine.
    """
    import llvmlite.binding as llvm

    from ....emit.object_code import host_target_machine

    # An engine owns its target machine, which would be freed twice if two engines shared it.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), host_target_machine())
    engine.finalize_object()  # compiles the empty module
    return engine


def load_object(object_bytes: bytes, symbol: str, engine: Any = None) -> LoadedKernel:
    """Load an object into `engine` (see `empty_engine`) or a new one. Return its kernel `symbol`.

    For an object with OpenMP symbols, `use_openmp` must have been called. Raise LoadError if
    symbols are missing (LLVM would abort the process) or if the object has state (see
    `refuse_state`).
    """
    import llvmlite.binding as llvm

    wanted = refuse_state(object_bytes)
    if any(name.startswith(_VECTOR_MATH_PREFIX) for name in wanted):
        try:
            llvm.load_library_permanently(_VECTOR_MATH_LIBRARY)
        except RuntimeError as error:
            what = f"the kernel needs {_VECTOR_MATH_LIBRARY} of glibc: {error}"
            raise MissingLibraryError(what) from error
    # The first engine makes LLVM find functions of the C library, so it is created before the
    # check.
    engine = empty_engine() if engine is None else engine
    missing = [name for name in wanted if not llvm.address_of_symbol(name)]
    if missing:
        raise LoadError(f"the object needs {', '.join(missing)}, which no loaded library provides")
    engine.add_object_file(llvm.ObjectFileRef.from_data(object_bytes))
    engine.finalize_object()
    return LoadedKernel(LoadedKernel(0, engine).function(symbol), engine)
