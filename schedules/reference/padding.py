"""Products with padding: terms of a sum that a correct kernel may compute or omit.

`where(cond, X[i], 0) * W[r]` is a product with zero if `cond` fails. It changes a sum only if W[r]
is NaN or infinite; docs/math.md then allows both results.
"""

from __future__ import annotations

from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    rewrite,
)


def without_padding(node: Scalar) -> Scalar:
    """Return `node` with a Select around each product that has a factor with padding. The product
    is then zero in the padding even if another factor is NaN. Return `node` itself if there is no
    such product."""

    def leaf(part: Scalar) -> Scalar | None:
        if not (isinstance(part, Binary) and part.op is BinaryOp.MUL):
            return None
        a, b = rewrite(part.a, leaf), rewrite(part.b, leaf)
        found: Scalar = part if a is part.a and b is part.b else Binary(BinaryOp.MUL, a, b)
        for cond in dict.fromkeys(needed(part)):
            found = Select(cond, found, Const(0, part.dtype))
        return found

    return rewrite(node, leaf)


def needed(node: Scalar) -> tuple[Scalar, ...]:
    """Return the conditions of selects that must all hold for `node` to be nonzero.

    Inside casts, negations, absolute values and sums, conditions on data are ignored, because
    kernels test them only where they occur.
    """
    match node:
        case Select(cond, on_true, Const(0)):
            each = [All((one,)) for one in cond.conds] if isinstance(cond, All) else [cond]
            return (*each, *needed(on_true))
        case Cast(x) | Unary(UnaryOp.NEG | UnaryOp.ABS, x):
            return tuple(cond for cond in needed(x) if isinstance(cond, All))
        case Binary(BinaryOp.MUL, a, b):
            return (*needed(a), *needed(b))
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            other = needed(b)
            return tuple(cond for cond in needed(a) if isinstance(cond, All) and cond in other)
        case _:
            return ()
