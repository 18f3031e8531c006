"""Several reductions of each row, and what is computed of them: every schedule computes them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.check import (
    CACHES,
    Pair,
    check_pair,
    random_setting,
    this_machine,
)
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.workload import Workload

SUMMED = ("{x}", "{x} * {y}", "abs({x} - {y})", "({x} - {y}) * ({x} - {y})", "{x} * {x}")


def statistics(rng: random.Random) -> Workload:
    """Two to four reductions of rows that share operands or not, perhaps of one another, then a
    formula of them: for each row, for each element, or reduced over all rows."""
    rows = rng.choice(("i", "i", "i,j"))
    names = "XWV"[: rng.randint(1, 3)]
    operands = [f"{name}[{rows},k]" for name in names]
    if rng.random() < 0.2:
        operands.append("B[k]")
    if rng.random() < 0.2:  # axes of the rows that cannot be merged
        operands.append("C[i,k]")
    text, sums = "", list[str]()
    for n in range(rng.randint(2, 4)):
        body = rng.choice(SUMMED).format(x=rng.choice(operands), y=rng.choice(operands))
        if sums and rng.random() < 0.2:
            body = f"({body}) - {rng.choice(sums)}"
        if rng.random() < 0.2:
            text += f"E{n}[{rows},k] = {body}; "
            body = f"E{n}[{rows},k]"
        text += f"S{n}[{rows}] {rng.choice(('+=', '+=', 'max=', 'min='))} {body}; "
        sums.append(f"S{n}[{rows}]")
    used = rng.sample(sums, rng.randint(2, len(sums)))
    if rows == "i,j" and rng.random() < 0.3:  # a part of the results of a reduction
        used[-1] = used[-1].replace("i,j", rng.choice(("i,0", "i,j//2")))
    formula = " - ".join(used)
    if rng.random() < 0.3:
        formula = f"where({used[0]} > 0.5, {formula}, {rng.choice(('0.0', '1.0'))})"
    kind = rng.choice(("row", "element", "total", "stored total", "converted", "any"))
    if kind == "row":
        text += f"Y[{rows}] = max({formula}, 0.5)"
    elif kind == "element":
        text += f"Y[{rows},k] = {rng.choice(operands)} * ({formula})"
    elif kind == "any":
        text += f"Y[z] max= {used[0]} > {used[1]}"
    elif kind == "converted":
        text += f"Y[z] += f64({formula})"
    else:
        if kind == "stored total":
            text += f"L[{rows}] = {formula}; "
            formula = f"L[{rows}]"
        text += f"Y[z] += max({formula}, 0.5)"
    extents = {"i": rng.choice((1, 2, 3, 8)), "j": rng.randint(1, 4)}
    shape = (*(extents[name] for name in rows.split(",")), rng.choice((2, 7, 16, 33, 64)))
    tensors = {name: ("f32", shape) for name in names if f"{name}[" in text}
    tensors |= {"B": ("f32", shape[-1:])} if "B[" in text else {}
    tensors |= {"C": ("f32", (shape[0], shape[-1]))} if "C[" in text else {}
    ranges = {name: extents[name] for name in rows.split(",")} | {"k": shape[-1]}
    return from_notation(text, tensors, ranges | ({"z": 1} if "[z]" in text else {}))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_any_schedule_of_several_reductions_of_rows_computes_them(seed: int) -> None:
    rng = random.Random(seed)
    workload = statistics(rng)
    threads, bits = rng.choice((1, 2)), rng.choice((128, 256, 512))
    trace = random_setting(rng, workload, this_machine(threads, bits, rng.choice(CACHES)))
    check_pair(Pair("knobs", workload, trace, threads, bits))
