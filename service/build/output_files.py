"""The files that `fetch` writes: objects, headers and a file for pkg-config; the CMake files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.service.atomic_files import folder_lock, write_atomically
from tilewright.service.build.consistency import check_header, check_record
from tilewright.service.build.lock_file import LockedKernel, LockError, LockFile
from tilewright.service.errors import UsageProblem

from .source import Source

PC_NAME = "tilewright-kernels.pc"
MADE_BY, ON_OPENMP = "made by Tilewright.\n", "(link with -fopenmp)."
"""Text in every header, and text in the headers of kernels for several threads."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file to write, whose bytes match the lock file. `kind` is "object", "header" or
    "pkg-config"."""

    kind: str
    name: str
    data: bytes


def chosen(lock: LockFile, names: list[str]) -> tuple[LockedKernel, ...]:
    """Return the kernels with these names, or all kernels if `names` is empty. Raise LockError if a
    name is unknown."""
    kernels = []
    for name in names:
        kernel = lock.kernel(name)
        if kernel is None:
            known = ", ".join(kernel.name for kernel in lock.kernels) or "none"
            raise LockError(f"no kernel {name!r} is locked; locked kernels: {known}")
        kernels.append(kernel)
    return tuple(kernels) or lock.kernels


def collected_files(lock: LockFile, names: list[str], source: Source) -> list[OutputFile]:
    """Return all files of the named kernels from `source`, checked. Raise NotTheBytes if a file
    differs."""
    kernels = chosen(lock, names)
    source.refuse_failed(kernels)
    return [file for kernel in kernels for file in _gathered(lock, kernel, source)]


def _gathered(lock: LockFile, kernel: LockedKernel, source: Source) -> list[OutputFile]:
    """Return the files of one kernel, compared with its entry."""
    for variant in kernel.variants:
        record = None if variant.record_key is None else source.record(variant.record_key)
        if record is not None:
            check_record(kernel, variant, record)
    files = []
    for kind, name in (("object", f"{kernel.name}.o"), ("header", f"{kernel.name}.h")):
        data = kernel.files[name].check(source.file(lock, kernel, name), name)
        files.append(OutputFile(kind, name, data))
    check_header(kernel, files[-1].data)
    return files


def pkg_config(kernels: Mapping[str, bool]) -> str:
    """Return the pkg-config file of `kernels` (name, whether it needs OpenMP). The folder can be
    moved."""
    objects = " ".join(f"${{prefix}}/{name}.o" for name in sorted(kernels))
    openmp = " -fopenmp" if any(kernels.values()) else ""
    names = ", ".join(sorted(kernels))
    return (
        "prefix=${pcfiledir}\n\n"
        "Name: tilewright-kernels\n"
        f"Description: Tensor kernels made by Tilewright: {names}\n"
        "Version: 1\n"
        "Cflags: -I${prefix}\n"
        f"Libs: {objects}{openmp}\n"
    )


def kernels_in(folder: Path) -> dict[str, bool]:
    """Return the kernels in a folder, from their headers: name, and whether it needs OpenMP."""
    found = {}
    for header in folder.glob("*.h"):
        text = header.read_text(encoding="utf-8", errors="replace")
        if text.startswith(f"/* {header.stem}: ") and MADE_BY in text and _has_object(header):
            found[header.stem] = ON_OPENMP in text
    return found


def _has_object(header: Path) -> bool:
    return header.with_suffix(".o").is_file()


def write(files: list[OutputFile], folder: Path) -> list[dict[str, Any]]:
    """Write each file atomically, and a pkg-config file for all kernels in the folder, including
    those of earlier commands. Return the list of files for `--json`. Raise UsageProblem if a file
    cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder):
            for file in files:
                write_atomically(folder / file.name, file.data)
            metadata = pkg_config(kernels_in(folder)).encode()
            files = [*files, OutputFile("pkg-config", PC_NAME, metadata)]
            write_atomically(folder / PC_NAME, metadata)
    except OSError as error:
        raise UsageProblem(f"cannot write to {folder}: {error.strerror or error}") from error
    return [
        {"kind": file.kind, "path": str(folder / file.name), "bytes": len(file.data)}
        for file in files
    ]


def cmake_dir() -> Path:
    """Return the folder for `Tilewright_DIR` or `CMAKE_PREFIX_PATH`."""
    return Path(__file__).parent / "cmake"
