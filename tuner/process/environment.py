"""Environment variables that affect libraries, and a clean environment for all timed processes.

A variable such as `OPENBLAS_CORETYPE` or `ONEDNN_MAX_CPU_ISA` makes a library use slower code than
the machine supports. Comparisons with it would then be meaningless.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_PREFIXES = (
    "OPENBLAS_", "GOTO_", "BLIS_", "AOCL_", "MKL_", "NVPL_", "VECLIB_", "FLEXIBLAS",
    "ONEDNN_", "DNNL_", "OMP_", "GOMP_", "KMP_", "TBB_", "ATEN_", "TORCH_", "TORCHINDUCTOR_",
    "PYTORCH_", "NPY_", "NUMPY_", "NUMEXPR_", "TVM_", "MALLOC_",
)  # fmt: skip
"""Prefixes of the variables of NumPy, PyTorch, TVM, and the libraries that they use: BLAS, oneDNN,
OpenMP, C heap."""

_NAMES = frozenset({"GLIBC_TUNABLES", "LRU_CACHE_CAPACITY"})
"""Further variables: the choice of string functions by CPU feature, and the size of PyTorch's
cache for oneDNN."""

_PLACES = ("_HOME", "_DIR", "_PATH", "ROOT")
"""Suffixes of variables that only contain the location of a file or folder."""

_THREADS = (
    "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "TVM_NUM_THREADS",
)  # fmt: skip

KEPT_MEMORY = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1"
)
"""`GLIBC_TUNABLES` of a process that times a library. Freed memory stays in the process, on huge
pages. Otherwise PyTorch, which allocates every result, would take new pages in every call (ADR
19)."""

SECRETS = frozenset({"TILEWRIGHT_API_KEY", "TILEWRIGHT_DB", "PGPASSWORD", "PGPASSFILE"})
"""Variables that must not be set in processes that compile or run kernels."""


def steering(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environ` that change the speed of a library, sorted by name."""
    return {name: environ[name] for name in sorted(environ) if _steers(name)}


def _steers(name: str) -> bool:
    known = name in _NAMES or name.startswith(_PREFIXES)
    return known and not name.endswith(_PLACES)


def clean_environment(environ: Mapping[str, str], threads: int) -> dict[str, str]:
    """Return `environ` for a process that is timed on `threads` threads.

    The variables of `steering` are removed. The thread count of each library is set, and OpenMP's
    threads are bound to separate cores (ADR 37). This project's kernels and other libraries get the
    same environment.
    """
    removed = SECRETS | set(steering(environ))
    kept = {name: value for name, value in environ.items() if name not in removed}
    counts = dict.fromkeys(_THREADS, str(threads))
    return {**kept, **counts, **openmp_environment(threads)}


def openmp_environment(threads: int) -> dict[str, str]:
    """Return the environment of a process whose kernels are timed with `threads` OpenMP threads.

    Each thread is bound to a separate core. Otherwise two threads may use the same core for a tenth
    of a second. Each spins while the other one works, and a kernel appears up to six times slower.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
    }


def child_environment(threads: int, **more: str) -> dict[str, str]:
    """Return the environment of this project's child processes. It is `clean_environment` with this
    process's import path and the variables `more`."""
    path = os.pathsep.join(p for p in sys.path if p)
    return {**clean_environment(os.environ, threads), "PYTHONPATH": path, **more}
