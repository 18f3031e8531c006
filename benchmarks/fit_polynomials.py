"""Fit the polynomials of `tuner/codegen/math_polynomials.py` and print that file.

    pip install mpmath && python benchmarks/fit_polynomials.py > tuner/codegen/math_polynomials.py

Each is a minimax fit (Remez exchange, E. Remez, C. R. Acad. Sci. 198, 1934) of the function under
the weight that turns its error into relative error of the final result. Coefficients are rounded
to the type one by one, lowest power first, and the rest is fitted again around each rounded one.
mpmath is needed here and nowhere else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# Imported by name: a type checker need not know a library that nothing else uses.
mpmath: Any = importlib.import_module("mpmath")
mp, mpf = mpmath.mp, mpmath.mpf

Function = Callable[[Any], Any]
GRID = 500


@dataclass(frozen=True, slots=True)
class Fit:
    """`sum(c[i] * x**i) ~ value(x)` on [low, high], least max of |weight(x) * error|."""

    name: str
    dtype: str
    degree: int
    low: Any
    high: Any
    value: Function
    weight: Function
    formula: str


def fits() -> list[Fit]:
    """Every polynomial, with the formula it stands in. All in 40 digits."""
    half_ln2 = mp.log(2) / 2 * mpf("1.01")  # the reduction may be off by a rounding
    low_f, high_f = mp.sqrt(mpf(1) / 2) - 1, mp.sqrt(mpf(2)) - 1
    high_z = (high_f / (2 + high_f)) ** 2

    def exp_q(r: Any) -> Any:
        return mpf(1) / 2 if r == 0 else (mp.expm1(r) - r) / r**2

    def exp_weight(r: Any) -> Any:
        return r**2 / mp.exp(r)

    def tanh_p(z: Any) -> Any:
        x = mp.sqrt(z)
        return -mpf(1) / 3 if z == 0 else (mp.tanh(x) / x - 1) / z

    def tanh_weight(z: Any) -> Any:
        x = mp.sqrt(z)
        return mpf(0) if z == 0 else z * x / mp.tanh(x)

    def log_q(f: Any) -> Any:
        return mpf(1) / 3 if f == 0 else (mp.log1p(f) - f + f**2 / 2) / f**3

    def log_weight(f: Any) -> Any:
        return mpf(0) if f == 0 else abs(f**3 / mp.log1p(f))

    def atanh_q(z: Any) -> Any:
        s = mp.sqrt(z)
        return mpf(2) / 3 if z == 0 else (2 * mp.atanh(s) - 2 * s) / (s * z)

    def atanh_weight(z: Any) -> Any:
        return z / 2

    def erf_p(z: Any) -> Any:
        x = mp.sqrt(z)
        return 2 / mp.sqrt(mp.pi) - 1 if z == 0 else mp.erf(x) / x - 1

    def erf_weight(z: Any) -> Any:
        x = mp.sqrt(z)
        return mp.sqrt(mp.pi) / 2 if z == 0 else x / mp.erf(x)

    def erfc_log(center: str) -> Function:
        return lambda u: mp.log(mp.erfc(u + mpf(center)))

    def erfc_weight(center: str) -> Function:
        return lambda u: mp.erfc(u + mpf(center)) / mp.erf(u + mpf(center))

    exp_formula = "exp(r) = 1 + r + r^2 q(r), |r| <= ln(2)/2"
    log_formula = "log(1+f) = f - f^2/2 + f^3 q(f), sqrt(1/2) <= 1+f <= sqrt(2)"
    atanh_formula = "log(1+f) = 2 s + s z q(z), s = f/(2+f), z = s^2"
    low_formula = "erf(x) = x + x p(x^2), |x| <= {}"
    tail_formula = "erf(x) = 1 - exp(p(|x| - {})), {} <= |x| <= {}"
    e32, e64 = ("0.9375", "1", "4"), ("1", "1.5", "6")
    return [
        Fit("EXP_F32", "float32", 4, -half_ln2, half_ln2, exp_q, exp_weight, exp_formula),
        Fit("EXP_F64", "float64", 10, -half_ln2, half_ln2, exp_q, exp_weight, exp_formula),
        Fit("LOG_F32", "float32", 8, low_f, high_f, log_q, log_weight, log_formula),
        Fit("LOG_F64", "float64", 6, mpf(0), high_z, atanh_q, atanh_weight, atanh_formula),
        Fit(
            "TANH_LOW_F32", "float32", 3, mpf(0), mpf("0.35") ** 2, tanh_p, tanh_weight,
            "tanh(x) = x + x^3 p(x^2), |x| <= 0.35",
        ),
        Fit(
            "ERF_LOW_F32", "float32", 5, mpf(0), mpf(e32[0]) ** 2, erf_p, erf_weight,
            low_formula.format(e32[0]),
        ),
        Fit(
            "ERF_LOW_F64", "float64", 12, mpf(0), mpf(e64[0]) ** 2, erf_p, erf_weight,
            low_formula.format(e64[0]),
        ),
        Fit(
            "ERF_TAIL_F32", "float32", 7, mpf(e32[0]) - mpf(e32[1]), mpf(e32[2]) - mpf(e32[1]),
            erfc_log(e32[1]), erfc_weight(e32[1]),
            tail_formula.format(e32[1], e32[0], e32[2]),
        ),
        Fit(
            "ERF_TAIL_F64", "float64", 19, mpf(e64[0]) - mpf(e64[1]), mpf(e64[2]) - mpf(e64[1]),
            erfc_log(e64[1]), erfc_weight(e64[1]),
            tail_formula.format(e64[1], e64[0], e64[2]),
        ),
    ]  # fmt: skip


def remez(points: list[Any], target: list[Any], weight: list[Any], powers: list[int]) -> list[Any]:
    """Coefficients of `powers` with least maximal weighted error over the grid `points`."""
    count = len(powers) + 1
    usable = [i for i, w in enumerate(weight) if w != 0]
    chosen = [usable[round(k * (len(usable) - 1) / (count - 1))] for k in range(count)]
    coefficients: list[Any] = []
    for _ in range(60):
        rows = [
            [points[i] ** p for p in powers] + [(-1) ** k / weight[i]] for k, i in enumerate(chosen)
        ]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([target[i] for i in chosen]))
        coefficients, level = list(solution)[:-1], abs(solution[len(powers)])
        errors = [
            w * (t - sum(c * x**p for c, p in zip(coefficients, powers, strict=True)))
            for x, t, w in zip(points, target, weight, strict=True)
        ]
        chosen = alternation(errors, count)
        if max(abs(e) for e in errors) <= level * mpf("1.001"):
            break
    return coefficients


def alternation(errors: list[Any], count: int) -> list[int]:
    """`count` grid indices where the error peaks with alternating sign, the largest kept."""
    peaks: list[int] = []
    for i, error in enumerate(errors):
        if error == 0:
            continue
        if peaks and (errors[peaks[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        # Drop from an end, or a neighbouring pair: either keeps the signs alternating.
        if len(peaks) == count + 1:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
            continue
        weakest = min(range(len(peaks)), key=lambda k: abs(errors[peaks[k]]))
        if weakest in (0, len(peaks) - 1):
            peaks.pop(weakest)
        else:
            other = min(weakest - 1, weakest + 1, key=lambda k: abs(errors[peaks[k]]))
            for k in sorted((weakest, other), reverse=True):
                peaks.pop(k)
    if len(peaks) < count:
        raise ArithmeticError(f"{len(peaks)} alternations, needs {count}: a finer grid would do")
    return peaks


def fit(task: Fit) -> tuple[list[float], float]:
    """Rounded coefficients, lowest power first, and log2 of the greatest weighted error."""
    middle, half = (task.high + task.low) / 2, (task.high - task.low) / 2
    nodes = [mp.cos(mp.pi * (GRID - 1 - i) / (GRID - 1)) for i in range(GRID)]
    points = [middle + half * node for node in nodes]
    target = [task.value(x) for x in points]
    weight = [task.weight(x) for x in points]
    rounded: list[Any] = []
    while len(rounded) <= task.degree:
        rest = [
            t - sum(c * x**i for i, c in enumerate(rounded))
            for x, t in zip(points, target, strict=True)
        ]
        powers = list(range(len(rounded), task.degree + 1))
        first = remez(points, rest, weight, powers)[0]
        rounded.append(mpf(float(np.dtype(task.dtype).type(float(first)))))
    worst = max(
        abs(w * (t - sum(c * x**i for i, c in enumerate(rounded))))
        for x, t, w in zip(points, target, weight, strict=True)
    )
    return [float(c) for c in rounded], float(mp.log(worst, 2))


def main() -> None:
    mp.dps = 40
    print('"""Coefficients of the vector math functions, lowest power first.')
    print()
    print("Made by `benchmarks/fit_polynomials.py`, which says how. Change that, not this file.")
    print("The figure beside a name is the greatest error of the exact polynomial, relative to the")
    print('result it helps to form.\n"""\n')
    print("from __future__ import annotations")
    for task in fits():
        coefficients, error = fit(task)
        print(f"{task.name}: {error:.1f}", file=sys.stderr)
        print(f"\n# {task.formula}; 2^{error:.1f}")
        print(f"{task.name} = (")
        for c in coefficients:
            print(f"    {c!r},")
        print(")")


if __name__ == "__main__":
    main()
