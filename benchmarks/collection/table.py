"""All rows, and the workload of a row."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import tilewright as tw
from benchmarks.collection import (
    convolutions,
    elementwise,
    losses,
    normalisations,
    products,
    programs,
)
from benchmarks.collection.row import Row

SINGLE = (
    *products.ROWS, *elementwise.ROWS, *normalisations.ROWS, *convolutions.ROWS, *losses.ROWS,
)  # fmt: skip
"""The single operators."""
PROGRAMS = programs.ROWS
"""Programs beyond contractions and rows, which the figures of the collection do not include."""


def chains() -> tuple[Row, ...]:
    """Return the fused chains, the rows of the modules `chains*`."""
    files = sorted(Path(__file__).parent.glob("chains*.py"))
    modules = [import_module(f"benchmarks.collection.{file.stem}") for file in files]
    return tuple(row for module in modules for row in module.ROWS)


def rows() -> dict[str, Row]:
    """Return all rows by name."""
    every = (*SINGLE, *chains(), *PROGRAMS)
    found = {row.name: row for row in every}
    assert len(found) == len(every), "two rows have one name"
    return found


def workload_of(row: Row) -> Any:
    """Return Tilewright's workload, whose arguments are the inputs of `row` in order. Raise
    WorkloadError if it cannot be expressed."""
    arrays = [tw.placeholder(each.name, each.shape, each.dtype) for each in row.inputs]
    made = row.ours(*arrays)
    workload = made if isinstance(made, tw.Workload) else tw.Workload.of(made, inputs=arrays)
    wanted = [(each.shape, each.dtype) for each in row.inputs]
    found = [(each.shape, str(each.dtype)) for each in workload.inputs]
    if wanted != found:
        raise tw.WorkloadError(f"{row.name} has the inputs {wanted}, its workload {found}")
    return workload
