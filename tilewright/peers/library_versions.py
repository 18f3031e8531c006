"""The versions of NumPy and PyTorch, and the code they chose for this processor.

A speed-up over a library has no meaning without these facts: OpenBLAS computes a product twice as
fast with its AVX-512 kernels as with its Haswell kernels, and the environment may select either.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_AFFIXES = [(prefix, suffix) for prefix in ("scipy_", "") for suffix in ("64_", "", "_64_", "_")]
"""Prefixes and suffixes that builds of OpenBLAS add to the names of functions."""


def numpy_libraries() -> dict[str, str]:
    """Return the versions of NumPy and its BLAS, the instruction set of NumPy's own loops, and for
    OpenBLAS the core type."""
    import numpy as np

    built = np.show_config(mode="dicts")
    simd = built["SIMD Extensions"] if built else {}
    found = {"numpy": np.__version__}
    for name in [*simd.get("baseline", ()), *simd.get("found", ())][-1:]:
        found["simd"] = name
    for path in _mapped("openblas"):
        library = ctypes.CDLL(path)
        config, core = _text(library, "get_config"), _text(library, "get_corename")
        if config is not None and core is not None:
            version = re.search(r"OpenBLAS (\d[\d.]*)", config)
            found |= {"blas": f"OpenBLAS {version[1] if version else '?'}", "core": core}
    if "blas" not in found:
        blas = built["Build Dependencies"]["blas"] if built else {}
        found["blas"] = f"{blas.get('name', '?')} {blas.get('version', '')}".strip()
    return found


def torch_libraries() -> dict[str, str]:
    """Return the versions of PyTorch, oneDNN and MKL, and the instruction sets that they use; {}
    without PyTorch. The first call runs a tiny computation in oneDNN and in MKL. MKL names an
    instruction set on Intel's processors only."""
    try:
        import torch
    except ImportError:
        return {}
    config = torch.__config__.show()
    found = {"torch": torch.__version__, "capability": torch.backends.cpu.get_cpu_capability()}
    for name, pattern in (
        ("onednn", r"MKL-DNN v([\d.]+)|oneDNN v([\d.]+)"),
        ("mkl", r"Math Kernel Library Version ([\d.]+)"),
    ):
        match = re.search(pattern, config)
        if match is not None:
            found[name] = next(group for group in match.groups() if group)
    one = torch.ones(4, 4)
    logs: dict[str, tuple[Any, str, Callable[[], object]]] = {
        "onednn": (
            torch.backends.mkldnn,
            r"cpu,isa:(.*)",
            lambda: torch.ops.mkldnn._linear_pointwise(one, one, None, "none", [], ""),
        ),
        "mkl": (torch.backends.mkl, r"64 architecture (.*) processors", lambda: one @ one),
    }
    for name, (backend, pattern, call) in logs.items():
        isa = re.search(pattern, _log_of(backend, call)) if name in found else None
        if isa is not None:
            found[f"{name}_isa"] = isa[1].strip()
    return found


def described(libraries: dict[str, str]) -> str:
    """Format the result of `numpy_libraries` or `torch_libraries` as one line."""
    parts = []
    if "numpy" in libraries:
        core = f" with {libraries['core']} kernels" if "core" in libraries else ""
        simd = f" ({libraries['simd']})" if "simd" in libraries else ""
        blas = libraries.get("blas", "no BLAS")
        parts.append(f"NumPy {libraries['numpy']}{simd}, {blas}{core}")
    if "torch" in libraries:
        text = f"PyTorch {libraries['torch']} ({libraries['capability']})"
        for name, title in (("onednn", "oneDNN"), ("mkl", "MKL")):
            if name in libraries:
                isa = f" ({libraries[f'{name}_isa']})" if f"{name}_isa" in libraries else ""
                text += f", {title} {libraries[name]}{isa}"
        parts.append(text)
    return "; ".join(parts)


def _mapped(word: str) -> list[str]:
    """Return the mapped files of this process whose names contain `word`."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if line.count("/") and word in line}
    return sorted(path for path in paths if word in Path(path).name)


def _text(library: ctypes.CDLL, name: str) -> str | None:
    """Return the text that OpenBLAS's function `name` returns, or None if there is no such
    function."""
    for prefix, suffix in _AFFIXES:
        function = getattr(library, f"{prefix}openblas_{name}{suffix}", None)
        if function is not None:
            function.restype = ctypes.c_char_p
            said: bytes = function()
            return said.decode(errors="replace").strip()
    return None


def _log_of(backend: Any, call: Callable[[], object]) -> str:
    """Return the lines that oneDNN or MKL (`torch.backends.mkldnn` or `.mkl`) prints to C's stdout
    during `call`. It states its instruction set when its log is first enabled."""
    c_library = ctypes.CDLL(None)
    with tempfile.TemporaryFile() as file:
        c_library.fflush(None)
        before = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with backend.verbose(backend.VERBOSE_ON):
                call()
        except (RuntimeError, AttributeError):
            return ""
        finally:
            c_library.fflush(None)
            os.dup2(before, 1)
            os.close(before)
        file.seek(0)
        return file.read().decode(errors="replace")
