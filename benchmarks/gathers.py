"""Gathers, and the functions of NumPy and PyTorch that compute them: rows of `benchmarks.scans`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw

_ENTROPY = (
    "m[i] max= A[i,k]; s[i] += exp(A[i,k] - m[i]);"
    " L[0] += (log(s[i]) + m[i] - A[i, I[i]]) * {share!r}"
)


@dataclass(frozen=True, slots=True)
class Gather:
    """A gather of the tensor in `table` at the integers in `index`, both `dtype[extents]`.

    `function` selects the functions of the libraries. All integers are inside.
    """

    expr: str
    table: str
    index: str
    function: str

    @property
    def name(self) -> str:
        return f"{self.function} {self.table} at {self.index}"

    @property
    def tensors(self) -> list[str]:
        return [f"A={self.table}", f"I={self.index}"]

    def arrays(self, workload: tw.Workload) -> list[Any]:
        """Return the table and the integers."""
        table, index = workload.inputs
        rng, axis = np.random.default_rng(0), 0 if self.function in ("take", "lookup") else 1
        values = rng.normal(size=table.shape) if table.dtype.is_float else rng.integers(0, 256, 256)
        most = table.shape[axis]
        at = rng.integers(0, most, index.shape)
        return [values.astype(table.dtype.numpy), at.astype(index.dtype.numpy)]

    def numpy(self, given: Sequence[Any], out: Any) -> Callable[[], object]:
        """Return NumPy's call, into `out` if NumPy can."""
        a, at = given
        match self.function:
            case "take" | "lookup":
                return lambda: np.take(a, at, axis=0, out=out, mode="clip")
            case "take_along_axis":
                return lambda: np.take_along_axis(a, at, 1)
            case _:
                return lambda: _cross_entropy(a, at)

    def torch(self, torch: Any, given: Sequence[Any], out: Any) -> Callable[[], object]:
        a, at = map(torch.from_numpy, given)
        match self.function:
            case "take":
                into = torch.from_numpy(out)
                return lambda: torch.index_select(a, 0, at, out=into)
            case "lookup":
                into, wide = torch.from_numpy(out), at.int()
                return lambda: torch.index_select(a, 0, wide, out=into)
            case "take_along_axis":
                into = torch.from_numpy(out)
                return lambda: torch.gather(a, 1, at, out=into)
            case _:
                return lambda: torch.nn.functional.cross_entropy(a, at)

    def right(self, given: Sequence[Any]) -> Any:
        a, at = given
        if self.function == "cross_entropy":
            return np.asarray([_cross_entropy(a.astype(np.float64), at)])
        return np.take_along_axis(a, at, 1) if self.function == "take_along_axis" else a[at]


def _cross_entropy(a: Any, at: Any) -> Any:
    top = a.max(axis=1, keepdims=True)
    total = np.log(np.exp(a - top).sum(axis=1)) + top[:, 0]
    return (total - a[np.arange(len(at)), at]).mean()


GATHERS = (
    Gather("Y[i,j] = A[I[i], j]", "f32[50000,512]", "i64[4096]", "take"),
    Gather("Y[i,j] = A[I[i], j]", "f32[1000,64]", "i64[20000]", "take"),
    Gather("Y[i,j] = A[i, I[i,j]]", "f32[1024,4096]", "i64[1024,1024]", "take_along_axis"),
    Gather("Y[i] = A[I[i]]", "u8[256]", "u8[1048576]", "lookup"),
    Gather("Y[i] = A[I[i]]", "f32[256]", "u8[1048576]", "lookup"),
    Gather(_ENTROPY.format(share=1 / 512), "f32[512,32000]", "i64[512]", "cross_entropy"),
)
