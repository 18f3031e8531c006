"""What `fetch` leaves in a folder: objects, headers, and a file for pkg-config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.errors import UsageProblem
from service.written import write_whole

from .locked import LockedKernel, LockError, LockFile
from .source import Source

PC_NAME = "tilewright-kernels.pc"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bytes to write, already checked; `kind` is "object", "header" or "pkg-config"."""

    kind: str
    name: str
    data: bytes


def chosen(lock: LockFile, names: list[str]) -> tuple[LockedKernel, ...]:
    """The kernels of these names, all for none. LockError."""
    kernels = []
    for name in names:
        kernel = lock.kernel(name)
        if kernel is None:
            known = ", ".join(kernel.name for kernel in lock.kernels) or "none"
            raise LockError(f"no kernel {name!r} is locked; there are: {known}")
        kernels.append(kernel)
    return tuple(kernels) or lock.kernels


def gathered(lock: LockFile, names: list[str], source: Source) -> list[Wanted]:
    """Every file of the kernels named, from `source`, checked. NotTheBytes, before anything is
    written."""
    kernels = chosen(lock, names)
    source.refuse_failed(kernels)
    files = [
        Wanted(kind, name, kernel.files[name].check(source.file(lock, kernel, name), name))
        for kernel in kernels
        for kind, name in (("object", f"{kernel.name}.o"), ("header", f"{kernel.name}.h"))
    ]
    return [*files, Wanted("pkg-config", PC_NAME, pkg_config(kernels).encode())]


def pkg_config(kernels: tuple[LockedKernel, ...]) -> str:
    """What pkg-config tells a build: where the headers are and what to link, wherever the folder
    is moved."""
    objects = " ".join(f"${{prefix}}/{kernel.name}.o" for kernel in kernels)
    openmp = " -fopenmp" if any("openmp" in kernel.links for kernel in kernels) else ""
    names = ", ".join(kernel.name for kernel in kernels)
    return (
        "prefix=${pcfiledir}\n\n"
        "Name: tilewright-kernels\n"
        f"Description: Tensor kernels made by Tilewright: {names}\n"
        "Version: 1\n"
        "Cflags: -I${prefix}\n"
        f"Libs: {objects}{openmp}\n"
    )


def write(files: list[Wanted], folder: Path) -> list[dict[str, Any]]:
    """Write each file whole or not at all; what was written, for `--json`. UsageProblem."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            write_whole(folder / file.name, file.data)
    except OSError as error:
        raise UsageProblem(f"cannot write to {folder}: {error.strerror or error}") from error
    return [
        {"kind": file.kind, "path": str(folder / file.name), "bytes": len(file.data)}
        for file in files
    ]
