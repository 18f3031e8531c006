"""Loop nests written by hand, and short words to write them with."""

from __future__ import annotations

from tilewright.schedules.algebra.affine import IndexLike, affine, var
from tilewright.schedules.algebra.comparisons import Cond, equal, less
from tilewright.schedules.algebra.scalar import Binary, BinaryOp, Const, Load, Reducer, Scalar
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    Stmt,
    StoreElement,
    Update,
    transform,
)
from tilewright.schedules.workload.tensors import Tensor

F32 = DType.F32


def tensor(name: str, *shape: int, dtype: DType = F32) -> Tensor:
    return Tensor(name, shape, dtype)


def load(name: str, *index: IndexLike, dtype: DType = F32) -> Load:
    return Load(name, tuple(map(affine, index)), dtype)


def store(name: str, index: tuple[IndexLike, ...], value: Scalar, *guards: Cond) -> StoreElement:
    return StoreElement(name, tuple(map(affine, index)), value, guards)


def update(
    name: str,
    index: tuple[IndexLike, ...],
    value: Scalar,
    first: tuple[Cond, ...] | None = None,
    reducer: Reducer = Reducer.SUM,
    guards: tuple[Cond, ...] = (),
) -> Update:
    return Update(name, tuple(map(affine, index)), value, reducer, first, guards)


def loop(var_name: str, extent: int, *body: Stmt, kind: LoopKind = LoopKind.SERIAL) -> For:
    return For(var_name, extent, body, kind)


def number(value: float, dtype: DType = F32) -> Const:
    return Const(value, dtype)


def plus(a: Scalar, b: Scalar) -> Binary:
    return Binary(BinaryOp.ADD, a, b)


def times(a: Scalar, b: Scalar) -> Binary:
    return Binary(BinaryOp.MUL, a, b)


def over(n: int, stmt: Stmt, kind: LoopKind = LoopKind.SERIAL, dtype: DType = F32) -> Nest:
    """Reads A[n], writes C[n], by `stmt` in a loop over i."""
    return Nest(
        (tensor("A", n, dtype=dtype),),
        (tensor("C", n, dtype=dtype),),
        (loop("i", n, stmt, kind=kind),),
    )


def matmul(m: int, n: int, k: int, dtype: DType = F32) -> Nest:
    """C[i, j] = sum over k of A[i, k] * B[k, j], nothing scheduled."""
    product = times(
        load("A", var("i"), var("k"), dtype=dtype), load("B", var("k"), var("j"), dtype=dtype)
    )
    leaf = update("C", (var("i"), var("j")), product, (equal(var("k"), 0),))
    reduction = For("k", k, (leaf,), reduce=True)
    inputs = (tensor("A", m, k, dtype=dtype), tensor("B", k, n, dtype=dtype))
    return Nest(inputs, (tensor("C", m, n, dtype=dtype),), (loop("i", m, loop("j", n, reduction)),))


def tiled_matmul(m: int, n: int, k: int, mr: int, nr: int) -> Nest:
    """The same in tiles of mr x nr with B packed and accumulators in registers; any sizes."""
    i, j = var("i_o") * mr + var("i_i"), var("j_o") * nr + var("j_i")
    rows, columns = -(-m // mr), -(-n // nr)
    pack = store("P", (var("k_p"), var("j_p")), load("B", var("k_p"), var("j_o") * nr + var("j_p")))
    packing = For(
        "k_p", k, (For("j_p", nr, (pack,), bounds=(less(var("j_o") * nr + var("j_p"), n),)),)
    )
    product = times(load("A", i, var("k")), load("P", var("k"), var("j_i")))
    inside = (less(i, m), less(j, n))
    body = update("R", (var("i_i"), var("j_i")), product, (equal(var("k"), 0),), guards=inside)
    lanes = loop("j_i", nr, body, kind=LoopKind.VECTORIZED)
    reduction = For("k", k, (loop("i_i", mr, lanes, kind=LoopKind.UNROLLED),), reduce=True)
    tile = {"i_i": var("i_s"), "j_i": var("j_s")}
    copied = store("C", (i.substitute(tile), j.substitute(tile)), load("R", var("i_s"), var("j_s")))
    write = For(
        "i_s",
        mr,
        (For("j_s", nr, (copied,), LoopKind.VECTORIZED, bounds=(less(j.substitute(tile), n),)),),
        LoopKind.UNROLLED,
        bounds=(less(i.substitute(tile), m),),
    )
    registers = Allocate(Buffer("R", (mr, nr), F32, BufferScope.REGISTER), (reduction, write))
    panel = Allocate(
        Buffer("P", (k, nr), F32, BufferScope.WORKSPACE), (packing, loop("i_o", rows, registers))
    )
    grid = loop("j_o", columns, panel, kind=LoopKind.PARALLEL)
    return Nest((tensor("A", m, k), tensor("B", k, n)), (tensor("C", m, n),), (grid,))


def with_body(nest: Nest, *body: Stmt) -> Nest:
    return Nest(nest.inputs, nest.outputs, body)


def as_serial(nest: Nest) -> Nest:
    """`nest` with every loop serial."""

    def change(stmt: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(stmt, For):
            return None
        body = transform(stmt.body, change)
        return (For(stmt.var, stmt.extent, body, LoopKind.SERIAL, stmt.reduce, stmt.bounds),)

    return with_body(nest, *transform(nest.body, change))
