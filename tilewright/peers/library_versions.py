"""The versions of NumPy and PyTorch, and the code they chose for this processor.

A speed-up over a library has no meaning without these facts: OpenBLAS computes a product twice as
fast with its AVX-512 kernels as with its Haswell kernels, and the environment may select either.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from pathlib import Path
from typing import Any

_AFFIXES = [(prefix, suffix) for prefix in ("scipy_", "") for suffix in ("64_", "", "_64_", "_")]
"""Prefixes and suffixes that builds of OpenBLAS add to the names of functions."""


def numpy_libraries() -> dict[str, str]:
    """Return the versions of NumPy and its BLAS; for OpenBLAS also the core type."""
    import numpy as np

    found = {"numpy": np.__version__}
    for path in _mapped("openblas"):
        library = ctypes.CDLL(path)
        config, core = _text(library, "get_config"), _text(library, "get_corename")
        if config is not None and core is not None:
            version = re.search(r"OpenBLAS (\d[\d.]*)", config)
            found |= {"blas": f"OpenBLAS {version[1] if version else '?'}", "core": core}
    if "blas" not in found:
        built = np.show_config(mode="dicts")
        blas = built["Build Dependencies"]["blas"] if built else {}
        found["blas"] = f"{blas.get('name', '?')} {blas.get('version', '')}".strip()
    return found


def torch_libraries() -> dict[str, str]:
    """Return the versions of PyTorch, oneDNN and MKL, and the instruction sets that PyTorch and
    oneDNN use; {} without PyTorch. The first call runs a tiny computation in oneDNN."""
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
    if "onednn" in found:
        isa = re.search(r"cpu,isa:(.*)", _first_words_of_onednn(torch))
        if isa is not None:
            found["onednn_isa"] = isa[1].strip()
    return found


def described(libraries: dict[str, str]) -> str:
    """Format the result of `numpy_libraries` or `torch_libraries` as one line."""
    parts = []
    if "numpy" in libraries:
        core = f" with {libraries['core']} kernels" if "core" in libraries else ""
        parts.append(f"NumPy {libraries['numpy']}, {libraries.get('blas', 'no BLAS')}{core}")
    if "torch" in libraries:
        text = f"PyTorch {libraries['torch']} ({libraries['capability']})"
        if "onednn" in libraries:
            isa = f" ({libraries['onednn_isa']})" if "onednn_isa" in libraries else ""
            text += f", oneDNN {libraries['onednn']}{isa}"
        if "mkl" in libraries:
            text += f", MKL {libraries['mkl']}"
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


def _first_words_of_onednn(torch: Any) -> str:
    """Return the lines that oneDNN prints to C's stdout when its log is first enabled."""
    c_library = ctypes.CDLL(None)
    one = torch.ones(4, 4)
    with tempfile.TemporaryFile() as file:
        c_library.fflush(None)
        before = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                torch.ops.mkldnn._linear_pointwise(one, one, None, "none", [], "")
        except (RuntimeError, AttributeError):
            return ""
        finally:
            c_library.fflush(None)
            os.dup2(before, 1)
            os.close(before)
        file.seek(0)
        return file.read().decode(errors="replace")
