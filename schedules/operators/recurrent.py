"""One step of recurrent layers. One matrix has the weights of all gates, as in PyTorch."""

from __future__ import annotations

from ..frontend.array.arrays import LazyArray, TensorArray
from ..frontend.array.functions import split
from ..frontend.expr import placeholder
from ..frontend.functions import sigmoid, tanh
from .registry import FLOATS, Draft, Operator, Param, Sizes, Types


def _inputs(p: Sizes, t: Types, gates: int, *states: str) -> tuple[TensorArray, ...]:
    """Return the inputs: x, the states, the weights of x and h, and their biases."""
    n, i, h, rows = p["N"], p["I"], p["H"], gates * p["H"]
    return (
        placeholder("x", (n, i), t.data),
        *(placeholder(name, (n, h), t.data) for name in states),
        placeholder("W_ih", (rows, i), t.weight),
        placeholder("W_hh", (rows, h), t.weight),
        placeholder("b_ih", (rows,), t.weight),
        placeholder("b_hh", (rows,), t.weight),
    )


def _products(p: Sizes, gates: int) -> int:
    return 2 * p["N"] * gates * p["H"] * (p["I"] + p["H"])


def _parts(x: LazyArray, gates: int) -> list[LazyArray]:
    return split(x, gates, axis=1)


def _gru_cell(p: Sizes, t: Types) -> Draft:
    """Build h' = (1 - z) * n + z * h with the reset gate r, the update gate z and the new values
    n."""
    inputs = _inputs(p, t, 3, "h")
    x, h, w_ih, w_hh, b_ih, b_hh = inputs
    r_x, z_x, n_x = _parts(x @ w_ih.T + b_ih, 3)
    r_h, z_h, n_h = _parts(h @ w_hh.T + b_hh, 3)
    z = sigmoid(z_x + z_h)
    n = tanh(n_x + sigmoid(r_x + r_h) * n_h)
    y = ((1 - z) * n + z * h).named("Y")
    return Draft(y, inputs, _products(p, 3) + 17 * y.tensor.elements)


def _lstm_cell(p: Sizes, t: Types) -> Draft:
    """Build c' = f * c + i * g and h' = o * tanh(c') with the gates i, f, o and the new values
    g."""
    inputs = _inputs(p, t, 4, "h", "c")
    x, h, c, w_ih, w_hh, b_ih, b_hh = inputs
    i, f, g, o = _parts(x @ w_ih.T + b_ih + (h @ w_hh.T + b_hh), 4)
    cell = (sigmoid(f) * c + sigmoid(i) * tanh(g)).named("C")
    y = (sigmoid(o) * tanh(cell)).named("Y")
    return Draft(y, inputs, _products(p, 4) + 21 * y.tensor.elements, more=(cell,))


_SIZES = (Param("N", 1), Param("I"), Param("H"))

OPERATORS = (
    Operator("gru_cell", "one step of a gated recurrent unit, gates r, z, n",
             "x[N,I] h[N,H] W_ih[3*H,I] W_hh[3*H,H] b_ih[3*H] b_hh[3*H] Y[N,H]",
             "6*N*H*(I + H) + 17*N*H", _SIZES, FLOATS, _gru_cell),
    Operator("lstm_cell", "one step of a long short-term memory, gates i, f, g, o",
             "x[N,I] h[N,H] c[N,H] W_ih[4*H,I] W_hh[4*H,H] b_ih[4*H] b_hh[4*H] Y[N,H] C[N,H]",
             "8*N*H*(I + H) + 21*N*H", _SIZES, FLOATS, _lstm_cell),
)  # fmt: skip
