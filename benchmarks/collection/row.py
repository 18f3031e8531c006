"""A row of the collection: its inputs, and the same operator with PyTorch and with Tilewright.

    Row(
        "matmul_relu",
        (Input("x", (1024, 512)), Input("w", (512, 768), role="weight")),
        torch=lambda F, x, w: F.relu(x @ w),
        ours=lambda x, w: tw.relu(x @ w),
    )

This module imports neither PyTorch nor Tilewright.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

Values = Literal[
    "normal", "uniform", "positive", "sign", "class", "mask", "distribution", "symmetric", "upper",
    "lower",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Input:
    """An input tensor, and how its values are drawn.

    | values | |
    |---|---|
    | normal | mean 0; standard deviation 1, of weights with several axes 1/sqrt(terms of a sum) |
    | uniform | `low` to `high` |
    | positive | 0.5 to 1.5, such as variances |
    | sign | -1 or 1 |
    | class | integers 0 to `high` - 1; give an integer `dtype` |
    | mask | 0 or 1 |
    | distribution | positive numbers whose sum over the last axis is 1 |
    | symmetric, upper, lower | a symmetric or triangular matrix of normal values |

    `dtype` is a name of Tilewright's. A mask of "u8" is a tensor of `torch.bool` for PyTorch.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    role: Literal["data", "weight"] = "data"
    values: Values = "normal"
    low: float = 0.0
    high: float = 1.0

    def drawn(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """Return values of the input as float64 or int64."""
        found: np.ndarray[Any, Any]
        match self.values:
            case "normal":
                found = rng.normal(size=self.shape)
                if self.role == "weight" and len(self.shape) > 1:
                    found /= np.sqrt(prod(self.shape) / max(self.shape[0], self.shape[1]))
            case "uniform":
                found = rng.uniform(self.low, self.high, self.shape)
            case "positive":
                found = rng.uniform(0.5, 1.5, self.shape)
            case "sign":
                found = rng.integers(0, 2, self.shape) * 2.0 - 1.0
            case "class":
                found = rng.integers(0, int(self.high), self.shape)
            case "mask":
                found = rng.integers(0, 2, self.shape)
            case "distribution":
                found = rng.uniform(0.1, 1.0, self.shape)
                found /= found.sum(-1, keepdims=True)
            case "symmetric":
                half = rng.normal(size=self.shape)
                found = half + half.T
            case "upper":
                found = np.triu(rng.normal(size=self.shape))
            case "lower":
                found = np.tril(rng.normal(size=self.shape))
        return found


@dataclass(frozen=True, slots=True)
class Row:
    """One computation.

    `torch` takes `torch.nn.functional` and the tensors in order (`F.torch` is PyTorch itself), and
    works for float64 tensors, too. `ours` takes Tilewright's arrays in order, and returns an array
    or, if it is an operator of the library, a workload with the same inputs. Both give one tensor
    with the same elements in the same order; extents of 1 may differ.
    """

    name: str
    inputs: tuple[Input, ...]
    torch: Callable[..., Any]
    ours: Callable[..., Any]
