"""The description of a scalar function: its semantics, range, error propagation, exact points and
accuracy guarantees. The rows are in `functions.py`.

Rows take the module `numpy` as an argument, so that queries that only need names do not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Numpy: TypeAlias = Any
"""The module `numpy`. It is typed `Any`, because its stubs do not state that exp(x) has the type of
x."""
Ends: TypeAlias = tuple[float, float]

SATURATED = 32.0
"""If |x| >= SATURATED, erf and tanh are 1 or -1 in float64 and in kernels. If such an x gives a
sigmoid of 1 in float64, it is also 1 in kernels. erf(6), tanh(20) and sigmoid(37) round to 1."""
VANISHED = -760.0
"""For arguments <= VANISHED, the exponential is zero in every type. In f64, it underflows below
-745.2."""
POLYNOMIAL_SLOTS = 6
"""Number of multiply-adds in the shortest f32 polynomials of exp, tanh, erf and similar
functions."""
FUNCTION_OPS = 2 * POLYNOMIAL_SLOTS
"""Number of instructions of such a function. Half of exp's are range reduction and scaling (a test
counts them)."""


class FloatType(Protocol):
    """Tests of numbers of the float type in which a function is computed, for
    `ScalarFunction.exact`."""

    def is_power(self, values: Array) -> Array:
        """Return a mask of the powers of two that are normal numbers of the type and have normal
        reciprocals."""

    def has_square(self, values: Array) -> Array:
        """Return a mask of the numbers whose square is exact in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """A function y = f(x)."""

    summary: str
    values: Callable[[Numpy, Array], Array]
    """Function of (np, x) that returns f(x) for an array or a scalar, in the type of x."""
    image: Callable[[float, float], Ends]
    """Function of (low, high) that returns the least and the greatest value of f between these
    arguments, restricted to f's domain."""
    defined: Callable[[float, float], bool] = lambda low, high: True
    """Function of (low, high) that returns whether f is finite for all arguments between them."""
    change: Callable[[Numpy, Array, Array, Array], Array | None] | None = None
    """Function of (np, x, y, e) that returns an upper bound of the change of y if x changes by up
    to `e`. If the field or its result is None, f is monotone, and the caller evaluates f at x - e
    and x + e."""
    exact: Callable[[Numpy, Array, Array, FloatType], Array] | None = None
    """Function of (np, x, y, type) that returns a mask of the float64 values y that every kernel
    returns exactly (`docs/math.md`)."""
    stated_ulps: tuple[float, float]
    """The guaranteed errors of kernels in f32 and f64, in units of the last place of the exact
    result."""
    allowed_ulps: float = 4.0
    """The error that the error bound assumes for every type, in the same unit."""
    special: tuple[tuple[float, float], ...] = ()
    """Pairs (x, f(x)) at zeros, at infinities and outside the domain. Every f returns NaN for
    NaN."""
    hard: tuple[float, ...] = ()
    """Arguments at which kernels are least accurate."""
    sweep: Ends = (-21.0, 21.0)
    """The range of arguments that tests sample densely."""
    keeps_zero_sign: bool = False
    may_leave_range: bool = False
    """Whether the function overflows or underflows for finite arguments of modest size."""
    on_integers: bool = False
    rounds_to_integer: bool = False
    """Whether f(x) is an integer next to x, and x itself if x is an integer. Such an f jumps, so
    its argument must be exact to a rounding, and its result has no error of its own."""
    slots: int = 0
    """The least number of multiply-add operations per lane."""
    calls: int = 0
    """The time of f divided by the time of a polynomial such as exp, or 0 if f takes one or two
    instructions."""
    numpy: str | None = None
    """The name of NumPy's ufunc for f, or None."""


def rising(function: Callable[[float], float]) -> Callable[[float, float], Ends]:
    """Return the field `image` of a non-decreasing function."""
    return lambda low, high: (function(low), function(high))


def falling(function: Callable[[float], float]) -> Callable[[float, float], Ends]:
    """Return the field `image` of a non-increasing function."""
    return lambda low, high: (function(high), function(low))


def by_slope(
    slope: Callable[[Numpy, Array], Array],
) -> Callable[[Numpy, Array, Array, Array], Array | None]:
    """Return the field `change` of a function. `slope(m)` is an upper bound of the function's slope
    at arguments of magnitude >= m, and decreases with m."""

    def change(np: Numpy, x: Array, y: Array, error: Array) -> Array | None:
        if not np.isfinite(error.max(initial=0.0)):
            return None
        nearest = np.maximum(np.abs(x) - error, 0.0)
        found: Array = np.asarray(slope(np, nearest) * error)
        return found

    return change
