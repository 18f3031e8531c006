"""Serialise a workload as canonical JSON, from which its key is computed.

`document_reader.py` parses the document.
"""

from __future__ import annotations

import math
from typing import Any, assert_never

from ..algebra.affine import Affine
from ..algebra.scalar import (
    All,
    Binary,
    Cast,
    Clamped,
    Compare,
    Components,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
)  # fmt: skip
from .computation import Computation
from .tensors import Axis, Elementwise, Reduction, Scan, Stage, Tensor, TupleReduction

FORMAT_VERSION = 1


def to_json(computation: Computation) -> dict[str, Any]:
    """Return the JSON document of `computation`. Fields with default values are omitted."""
    document: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "inputs": [_tensor_json(t) for t in computation.inputs],
        "stages": [_stage_json(s) for s in computation.stages],
        "outputs": list(computation.outputs),
    }
    if computation.name:
        document["name"] = computation.name
    if computation.declared_flops is not None:
        document["declared_flops"] = computation.declared_flops
    if computation.declared_min_bytes is not None:
        document["declared_min_bytes"] = computation.declared_min_bytes
    if computation.allowed_error is not None:
        document["allowed_error"] = computation.allowed_error
    return document


def _tensor_json(tensor: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": tensor.name,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
    }
    return {**found, "constant": True} if tensor.constant else found


def _stage_json(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": stage.name,
        "dtype": str(stage.tensor.dtype),
        "axes": _axes_json(stage.axes),
        "body": _node_json(stage.body),
    }
    match stage.kind:
        case Elementwise():
            return found
        case Reduction(reducer, axes):
            return {**found, "reducer": str(reducer), "reduce_axes": _axes_json(axes)}
        case Scan(reducer, dim, reverse):
            found |= {"reducer": str(reducer), "scan_axis": stage.axes[dim].name}
            return {**found, "reverse": True} if reverse else found
        case TupleReduction(axes, identities, combine, position, commutative):
            found |= {
                "reduce_axes": _axes_json(axes),
                "identities": [_node_json(node) for node in identities],
                "combine": [_node_json(node) for node in combine],
                "position": position,
            }
            return {**found, "commutative": True} if commutative else found
        case _:
            assert_never(stage.kind)


def _axes_json(axes: tuple[Axis, ...]) -> list[list[str | int]]:
    return [[axis.name, axis.extent] for axis in axes]


def _node_json(node: Scalar) -> dict[str, Any]:
    match node:
        case Const():
            return {"op": "const", "value": _number_json(node.value), "dtype": str(node.dtype)}
        case Load():
            index = [_index_json(i) for i in node.index]
            return {"op": "load", "tensor": node.tensor, "index": index}
        case IndexValue():
            return {"op": "index", "index": str(node.index), "dtype": str(node.dtype)}
        case Unary():
            return {"op": str(node.op), "x": _node_json(node.x)}
        case Binary() | Compare():
            return {"op": str(node.op), "a": _node_json(node.a), "b": _node_json(node.b)}
        case Cast():
            return {"op": "cast", "x": _node_json(node.x), "dtype": str(node.dtype)}
        case All():
            return {"op": "all", "conds": [str(c) for c in node.conds]}
        case Select():
            return {
                "op": "select",
                "cond": _node_json(node.cond),
                "on_true": _node_json(node.on_true),
                "on_false": _node_json(node.on_false),
            }
        case Components():
            return {"op": "tuple", "values": [_node_json(value) for value in node.values]}
        case _:
            assert_never(node)


def _index_json(index: Affine) -> str | dict[str, Any]:
    if not index.has_data:
        return str(index)
    (datum,) = index.data()
    assert isinstance(datum, Clamped), "valid workloads have data in this form only"
    return {"clamp": _node_json(datum.value)}


def _number_json(value: float) -> int | float | str:
    return value if math.isfinite(value) else str(value)
