"""The operator suite: `operator_suite.json` as cases.

`published` are the float32 layers and subgraphs of networks and of other tuners' papers; `added`
fills families up with what those leave out. Sizes at an operator's default are left out. `weights`
names the input of each operator that never changes in a network, and `with_constant_weights` the
cases that are measured with it marked constant as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.suite.cases import Case

DATA = Path(__file__).with_name("operator_suite.json")

_WINDOWED = ("H", "W", "CI", "CO")
_AXES = {
    "matmul": ("M", "N", "K"), "matmul_nt": ("M", "N", "K"), "matmul_tn": ("M", "N", "K"),
    "gemv": ("N", "K"), "batch_matmul": ("B", "M", "N", "K"),
    "batch_matmul_nt": ("B", "M", "N", "K"),
    "transpose_batch_matmul": ("batch", "seq", "heads", "dim"),
    "transpose_batch_matmul_softmax": ("batch", "seq", "heads", "dim"),
    "attention_values": ("B", "H", "S", "D"),
    "conv1d_nlc": ("L", "CI", "CO"), "conv2d_nhwc": _WINDOWED, "conv2d_nhwc_bn_relu": _WINDOWED,
    "conv3d_ndhwc": ("D", *_WINDOWED), "conv2d_transpose_nhwc": _WINDOWED,
    "conv2d_capsule_nhwijc": _WINDOWED, "depthwise_conv2d_nhwc": ("H", "W", "C"),
    "max_pool2d_nhwc": ("H", "W", "C"), "global_avg_pool_nhwc": ("H", "W", "C"),
    "softmax_mn": ("M", "N"), "layernorm_mn": ("M", "N"), "norm_bmn": ("B", "M", "N"),
    "colsum_mn": ("M", "N"), "elementwise_add_relu": ("M", "N"), "transpose_mn": ("M", "N"),
}  # fmt: skip
"""Sizes that a check may set to anything, by operator. The suite's peers have their names."""


@cache
def suite_cases() -> tuple[Case, ...]:
    """Every case that is measured by default."""
    return tuple(_case(entry) for entry in _entries() if not entry.get("heavy"))


@cache
def heavy_cases() -> tuple[Case, ...]:
    """Those of more than 2e10 operations, measured only when asked for."""
    return tuple(_case(entry) for entry in _entries() if entry.get("heavy"))


@cache
def constant_cases() -> tuple[Case, ...]:
    """The same computations with their weights marked constant, under names of their own."""
    document = json.loads(DATA.read_text())
    cases = {case.name: case for case in suite_cases()}
    return tuple(
        _with_constants(cases[name], document["weights"])
        for name in document["with_constant_weights"]
    )


def _with_constants(case: Case, weights: Mapping[str, str]) -> Case:
    weight = weights[case.operator]
    return replace(case, name=f"{case.name} constant {weight}", constants=(weight,))


def _entries() -> list[dict[str, Any]]:
    document = json.loads(DATA.read_text())
    return [*document["published"], *document["added"]]


def _case(entry: dict[str, Any]) -> Case:
    """An operator of the library, or the expression `notation` under a name of its own."""
    op = entry["op"]
    return Case(
        name=entry["name"],
        peer=op,
        sizes=entry["sizes"],
        operator="" if "notation" in entry else op,
        epilogue=entry.get("epilogue", ""),
        notation=entry.get("notation", ""),
        tensors=entry.get("tensors", {}),
        axes=_AXES[op],
    )
