"""Environment variables that affect the speed of libraries, and one clean environment for all
timing.

A variable such as `OPENBLAS_CORETYPE` or `ONEDNN_MAX_CPU_ISA` lets a library use slower code than
the machine supports. A comparison with a library that is slowed down means nothing.
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
"""Variables of NumPy, PyTorch, TVM and the libraries they use: BLAS, oneDNN, OpenMP, the C heap."""

_NAMES = frozenset({"GLIBC_TUNABLES", "LRU_CACHE_CAPACITY"})
"""Variables that select string functions by CPU features, and PyTorch's cache of oneDNN
primitives."""

_PLACES = ("_HOME", "_DIR", "_PATH", "ROOT")
"""Ends of names that contain locations only."""

_THREADS = (
    "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "TVM_NUM_THREADS",
)  # fmt: skip

KEPT_MEMORY = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1"
)
"""`GLIBC_TUNABLES` of a process that times a library. It keeps freed memory, on huge pages:
PyTorch allocates every result, and would need new pages in every call (ADR 19)."""


SECRETS = frozenset({"TILEWRIGHT_API_KEY", "TILEWRIGHT_DB", "PGPASSWORD", "PGPASSFILE"})
"""Secrets that processes that compile or run kernels must not have in their environment."""


def steering(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environ` that change how fast a library computes, by name."""
    return {name: environ[name] for name in sorted(environ) if _steers(name)}


def _steers(name: str) -> bool:
    known = name in _NAMES or name.startswith(_PREFIXES)
    return known and not name.endswith(_PLACES)


def clean_environment(environ: Mapping[str, str], threads: int) -> dict[str, str]:
    """`environ` for a process that is timed on `threads` threads, with any library.

    Without the variables that `steering` returns; with the thread count of each library, and one
    core per OpenMP thread (ADR 37). Equal for our kernels and for libraries.
    """
    removed = SECRETS | set(steering(environ))
    kept = {name: value for name, value in environ.items() if name not in removed}
    counts = dict.fromkeys(_THREADS, str(threads))
    return {**kept, **counts, **openmp_environment(threads)}


def openmp_environment(threads: int) -> dict[str, str]:
    """Environment of a process whose parallel kernels are timed with `threads` threads.

    Each thread stays on its own core: the scheduler may put two on one core for a tenth of a
    second, where each spins while the other has work, and a kernel seems up to six times slower.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
    }


def child_environment(threads: int, **more: str) -> dict[str, str]:
    """The environment of our helper processes: this one with our import path, `threads` threads for
    each library and no variable that steers one, as in a benchmark."""
    path = os.pathsep.join(p for p in sys.path if p)
    return {**clean_environment(os.environ, threads), "PYTHONPATH": path, **more}
