"""Environment variables that affect libraries, and one clean set of them for all timed processes.

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
"""Prefixes of variables of NumPy, PyTorch, TVM and the libraries they use: BLAS, oneDNN, OpenMP,
the C library's heap."""

_NAMES = frozenset({"GLIBC_TUNABLES", "LRU_CACHE_CAPACITY"})
"""String functions selected by processor features, and the size of PyTorch's cache of oneDNN
primitives."""

_PLACES = ("_HOME", "_DIR", "_PATH", "ROOT")
"""Suffixes of names that only give the location of a file or folder."""

_THREADS = (
    "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "TVM_NUM_THREADS",
)  # fmt: skip

KEPT_MEMORY = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1"
)
"""`GLIBC_TUNABLES` of a process that times a library. Freed memory stays with the process, on huge
pages: PyTorch allocates every result, and would pay for new pages in every call (ADR 19)."""


SECRETS = frozenset({"TILEWRIGHT_API_KEY", "TILEWRIGHT_DB", "PGPASSWORD", "PGPASSFILE"})
"""Secrets that must not be in the environment of processes that compile or run kernels."""


def steering(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environ` that change the speed of a library, sorted by name."""
    return {name: environ[name] for name in sorted(environ) if _steers(name)}


def _steers(name: str) -> bool:
    known = name in _NAMES or name.startswith(_PREFIXES)
    return known and not name.endswith(_PLACES)


def clean_environment(environ: Mapping[str, str], threads: int) -> dict[str, str]:
    """Return `environ` for a process that is timed on `threads` threads, whichever library it uses.

    Every variable that `steering` finds is removed. The thread count of each library is set, and
    OpenMP's threads are bound to separate cores (ADR 37). The environment is the same for this
    project's kernels and for other libraries.
    """
    removed = SECRETS | set(steering(environ))
    kept = {name: value for name, value in environ.items() if name not in removed}
    counts = dict.fromkeys(_THREADS, str(threads))
    return {**kept, **counts, **openmp_environment(threads)}


def openmp_environment(threads: int) -> dict[str, str]:
    """Return the environment of a process whose parallel kernels are timed with `threads` threads.

    Each thread stays on a separate core. Without binding, two threads may share a core for a tenth
    of a second, each spinning while the other works, and a kernel appears up to six times slower.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_PROC_BIND": "close",
        "OMP_PLACES": "cores",
    }


def child_environment(threads: int, **more: str) -> dict[str, str]:
    """Return the environment of this project's child processes: the current one with this import
    path, `threads` threads for each library, and no variable that affects a library, as in a
    benchmark."""
    path = os.pathsep.join(p for p in sys.path if p)
    return {**clean_environment(os.environ, threads), "PYTHONPATH": path, **more}
