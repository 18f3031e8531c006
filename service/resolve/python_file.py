"""A workload from a function in a user's Python file.

Only the command line runs such a file. The author must correct its errors, so a message is one line
with the location; a traceback would look like a bug of Tilewright.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright.schedules.errors import TilewrightError
from tilewright.service.errors import UsageProblem

if TYPE_CHECKING:
    from tilewright.schedules.workload.workload import Workload


def call_function(file: str, name: str) -> Workload:
    """Return the result of function `name` in `file`. Raise UsageProblem or WorkloadError. Output
    of the function goes to stderr, because stdout may have to be one JSON document."""
    path = Path(file)
    try:
        there = path.is_file()
    except OSError as error:
        raise UsageProblem(f"cannot read {file}: {error.strerror}") from error
    if not there:
        raise UsageProblem(f"{file}: there is no such file")
    with redirect_stdout(sys.stderr):
        with _reported(file, file):
            module = _load(path)
        function = getattr(module, name, None)
        if not callable(function):
            raise UsageProblem(f"{file} has no function {name!r}; it has {_functions(module)}")
        with _reported(f"{file}:{name}", file):
            returned = function()
    workload = _workload_of(returned)
    if workload is None:
        raise UsageProblem(
            f"{file}:{name} returned {type(returned).__name__}; it must return a Workload, or"
            " tensors or arrays: the outputs of one"
        )
    workload.normalised()  # raises WorkloadError if it is not a computation
    return workload if workload.name else workload.named(name)


def _workload_of(returned: object) -> Workload | None:
    """Return the workload that a function returned, or whose outputs it returned."""
    # Start-up: most workloads are not in a Python file.
    from tilewright.schedules.workload.assemble import ArraySource, TensorSource
    from tilewright.schedules.workload.workload import Workload

    if isinstance(returned, Workload):
        return returned
    outputs = returned if isinstance(returned, tuple | list) else (returned,)
    if outputs and all(isinstance(output, TensorSource | ArraySource) for output in outputs):
        return Workload.of(*outputs)
    return None


def _load(path: Path) -> ModuleType:
    name = f"tilewright_file_{path.stem}"  # not the name of an existing module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


def _functions(module: ModuleType) -> str:
    own = sorted(
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
    )
    return ", ".join(own) or "none"


@contextmanager
def _reported(what: str, file: str) -> Iterator[None]:
    """Convert exceptions of the user's code into UsageProblem; errors of Tilewright are not
    changed."""
    try:
        yield
    except SyntaxError as error:
        raise UsageProblem(f"{file}: line {error.lineno}: {error.msg}") from error
    except TilewrightError:
        raise
    except SystemExit as error:
        raise UsageProblem(f"{what} ended the program (exit code {error.code})") from error
    except Exception as error:  # user code may raise anything
        raise UsageProblem(
            f"{what} raised {type(error).__name__}: {error}{_place(error, file)}",
            advice="Correct the file.",
        ) from error


def _place(error: Any, file: str) -> str:
    """Return the line of `file` that is innermost in the traceback, as text, or ""."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == Path(file) or frame.filename == str(Path(file).resolve())
    ]
    return f" (line {lines[-1]} of {file})" if lines else ""
