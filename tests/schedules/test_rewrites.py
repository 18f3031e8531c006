"""Rewrites of the expression: same meaning, stated error, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.schedules import operators
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.lowering.lower import lower, start, stated_error
from tilewright.schedules.primitives import Split
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import Winograd
from tilewright.schedules.rewrites.cook_toom import fast_filter, has_filter
from tilewright.schedules.rewrites.scale import error_scale
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.validate import validate
from tilewright.schedules.workload.workload import Workload

ALLOWED = 0.5
FILTERS = [(2, 3), (3, 2), (4, 3), (3, 4), (2, 5), (5, 2)]


def conv(**sizes: object) -> Workload:
    found: dict[str, object] = {"N": 1, "H": 8, "W": 8, "CI": 3, "CO": 4, "K": 3, "pad": 1}
    return operators.build("conv2d_nhwc", found | sizes).allowing(ALLOWED)


def reduction_of(workload: Workload) -> str:
    """What the normal form calls the stage that sums."""
    (name,) = [s.name for s in workload.normalised().stages if s.is_reduction]
    return name


def inputs_of(workload: Workload, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(t.shape).astype(t.dtype.numpy) for t in workload.inputs]


def same_meaning(workload: Workload, step: Winograd) -> None:
    """The rewritten form gives the same numbers, and its error bound is within the stated one."""
    form = workload.normalised()
    rewritten = step.rewrite(form)
    validate(rewritten)
    assert rewritten.normalised() == rewritten
    assert [t.shape for t in rewritten.arguments] == [t.shape for t in form.arguments]
    inputs = inputs_of(workload)
    results = zip(evaluate(workload, inputs), evaluate(rewritten, inputs), strict=True)
    scale = error_scale(workload, (step,), inputs)
    for expected, found in results:
        assert np.abs(expected - found).max() <= 1e-12 * scale
    if form.outputs == (step.stage,):
        ((_, bound),) = evaluate_with_bound(rewritten, inputs)
        assert bound.max() <= step.stated_error(form) * scale


@pytest.mark.parametrize(("outputs", "taps"), FILTERS)
def test_the_matrices_are_right_in_exact_fractions(outputs: int, taps: int) -> None:
    found = fast_filter(outputs, taps)
    n = outputs + taps - 1
    for o in range(outputs):
        for t in range(taps):
            for i in range(n):
                total = sum(
                    found.outputs[o][k] * found.taps[k][t] * found.inputs[k][i] for k in range(n)
                )
                assert total == Fraction(i == o + t)


def test_the_amplification_is_that_of_the_documentation() -> None:
    assert fast_filter(2, 3).amplification == 4
    assert float(fast_filter(4, 3).amplification) == pytest.approx(12.33, abs=0.01)
    assert [has_filter(*f) for f in ((1, 3), (2, 1), (3, 3), (8, 3), (4, 3))] == [False] * 4 + [
        True
    ]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.fixed_dictionaries(
        {
            "N": st.integers(1, 2),
            "H": st.integers(2, 11),
            "W": st.integers(2, 11),
            "CI": st.integers(1, 4),
            "CO": st.integers(1, 4),
            "KH": st.sampled_from([1, 2, 3, 4, 5]),
            "KW": st.sampled_from([2, 3, 5]),
            "pad_h": st.integers(0, 3),
            "pad_w": st.integers(0, 3),
        }
    ),
    outputs=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_every_size_padding_and_tile_means_the_same(
    sizes: dict[str, int], outputs: tuple[int, int]
) -> None:
    try:
        workload = operators.build("conv2d_nhwc", sizes).allowing(ALLOWED)
    except WorkloadError:
        return  # the window is larger than the padded data
    step = Winograd(reduction_of(workload), tuple((d, m) for d, m in enumerate(outputs, 1) if m))
    try:
        step.rewrite(workload.normalised())
    except ScheduleError:
        return  # no such filter, one output only, or nothing to tile
    same_meaning(workload, step)


EXPRESSIONS = [
    # channels first
    ("Y[n,o,h,w] += X[n,c,h+r-1,w+s-1] * W[o,c,r,s]", ["X=f32[2,3,7,6]", "W=f32[4,3,3,3]"], (2, 3)),
    # weights first in the product, axes turned
    ("Y[w,o,h] += W[s,o,r,c] * X[h+r,c,w+s-1]", ["X=f32[9,3,7]", "W=f32[3,4,3,3]"], (0, 2)),
    # one dimension, and a second sum
    ("Y[n,w,o] += X[n,w+s-1,c,e] * W[s,c,e,o]", ["X=f32[2,9,2,3]", "W=f32[3,2,3,4]"], (1,)),
    # three dimensions
    (
        "Y[d,h,w,o] += X[d+q-1,h+r-1,w+s-1,c] * W[q,r,s,c,o]",
        ["X=f32[3,4,5,2]", "W=f32[3,3,3,2,2]"],
        (0, 1, 2),
    ),
    # a stride along one axis leaves the other
    ("Y[h,w,o] += X[2*h+r,w+s-1,c] * W[r,s,c,o]", ["X=f32[9,7,3]", "W=f32[3,3,3,4]"], (1,)),
    # groups
    ("Y[h,w,f] += X[h+r-1,w+s-1,f//2*3+c] * W[r,s,c,f]", ["X=f32[5,6,6]", "W=f32[3,3,3,4]"], (0,)),
    # in f64
    ("Y[h,w,o] += X[h+r-1,w+s-1,c] * W[r,s,c,o]", ["X=f64[5,6,3]", "W=f64[3,3,3,4]"], (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tensors", "dims"), EXPRESSIONS)
@pytest.mark.parametrize("size", [2, 4])
def test_structure_decides_and_not_the_layout(
    text: str, tensors: list[str], dims: tuple[int, ...], size: int
) -> None:
    ranges = ["w=7", "h=7"] if text.startswith("Y[w,o,h]") else []
    workload = parse_workload(expr=text, tensors=tensors, ranges=ranges, allow_error=ALLOWED)
    for some in {dims, dims[:1], dims[-1:]}:
        same_meaning(workload, Winograd(reduction_of(workload), tuple((d, size) for d in some)))


def test_what_follows_the_stage_reads_the_rewritten_one() -> None:
    workload = conv(H=7, W=9, epilogue="bias+relu")
    same_meaning(workload, Winograd(reduction_of(workload), ((1, 4), (2, 2))))


def test_two_stages_are_rewritten_one_after_the_other() -> None:
    text = "Y[h,w,o] += X[h+r-1,w+s-1,c] * W[r,s,c,o];Z[h,w,p] += Y[h+r-1,w+s-1,o] * V[r,s,o,p]"
    tensors = ["X=f32[6,6,2]", "W=f32[3,3,2,3]", "V=f32[3,3,3,2]"]
    workload = parse_workload(expr=text, tensors=tensors, allow_error=ALLOWED)
    from tilewright.schedules.sketches.forms.rewriting import rewrites_for

    four, two = (form.steps for form in rewrites_for(workload.normalised()))
    assert [len(four), len(two)] == [2, 2]
    rewritten, rest = start(workload, Trace((*four, Split("s0.d0", 2))))
    assert rest == Trace((Split("s0.d0", 2),))
    inputs = inputs_of(workload)
    scale = error_scale(workload, four, inputs)
    assert (
        np.abs(evaluate(workload, inputs)[0] - evaluate(rewritten, inputs)[0]).max() < 1e-12 * scale
    )
    assert stated_error(workload, four) > stated_error(workload, two)


PLAIN = "Y[h,o] += X[h+r,c] * W[r,c,o]"
REFUSED = [
    ("C[h,o] += X[h,c] * W[c,o]", "f32 9,2 2,2", ((0, 4),), "no axis slides"),
    ("Y[h,o] max= X[h+r,c] * W[r,c,o]", "f32 9,2 3,2,2", ((0, 4),), "must be a sum"),
    ("Y[h,o] += X[h+r,c] + W[r,c,o]", "f32 9,2 3,2,2", ((0, 4),), "must be a sum"),
    ("Y[h,o] += X[2*h+r,c] * W[r,c,o]", "f32 9,2 3,2,2", ((0, 4),), "no axis slides"),
    ("Y[h,o] += X[h+2*r,c] * W[r,c,o]", "f32 9,2 3,2,2", ((0, 4),), "no axis slides"),
    ("Y[h,c] += X[h+r,c] * W[r,c]", "f32 9,2 3,2", ((0, 4),), "nothing would be left"),
    (PLAIN, "i32 9,2 3,2,2", ((0, 4),), "f32 or f64"),
    (PLAIN, "bf16 9,2 3,2,2", ((0, 4),), "no axis slides"),
    ("Y[h,o] += where(h+r>=2, X[h+r,c], 0) * W[r,c,o]", "f32 9,2 3,2,2", ((0, 4),), "own bounds"),
    (PLAIN, "f32 9,2 3,2,2", ((0, 3),), "there is no F"),
    (PLAIN, "f32 9,2 3,2,2", ((0, -1),), "there is no F"),
    (PLAIN, "f32 9,2 3,2,2", ((1, 4),), "slide along"),
    (PLAIN, "f32 9,2 3,2,2", (), "tiles are pairs"),
    (PLAIN, "f32 9,2 3,2,2", ((0, 4), (0, 4)), "tiles are pairs"),
]


@pytest.mark.parametrize(("text", "tensors", "tiles", "reason"), REFUSED)
def test_what_does_not_fit_is_refused(
    text: str, tensors: str, tiles: tuple[tuple[int, int], ...], reason: str
) -> None:
    dtype, x, w = tensors.split()
    workload = parse_workload(
        expr=text,
        tensors=[f"X={dtype}[{x}]", f"W={dtype}[{w}]"],
        ranges=["r=3"] if "2*" in text else [],
        allow_error=ALLOWED,
    )
    with pytest.raises(ScheduleError, match=reason):
        Winograd("s0", tiles).rewrite(workload.normalised())


def test_a_stage_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no stage is called 's7'"):
        Winograd("s7", ((1, 4),)).rewrite(conv().normalised())


def test_nothing_is_rewritten_unless_its_error_is_allowed() -> None:
    step = Winograd("s0", ((1, 4), (2, 4)))
    form = conv().normalised()
    stated = step.stated_error(form)
    assert 1e-4 < stated < 1e-3
    step.rewrite(form.allowing(stated * 1.01))
    for allowed, said in ((None, "no error"), (stated * 0.99, "an error of")):
        with pytest.raises(ScheduleError, match=f"the workload allows {said}"):
            step.rewrite(form.allowing(allowed))
        with pytest.raises(ScheduleError, match="allows"):
            lower(form.allowing(allowed), Trace((step,)))


def test_the_error_grows_with_the_channels_and_the_tile() -> None:
    few, many = conv().normalised(), conv(CI=300).normalised()
    two, four = (Winograd("s0", ((1, m), (2, m))) for m in (2, 4))
    assert two.stated_error(few) < four.stated_error(few) < four.stated_error(many)
    double = conv(dtype="f64").normalised()
    assert four.stated_error(double) < 1e-8 * four.stated_error(few)


def test_an_allowance_is_part_of_the_key_only_where_there_is_one() -> None:
    plain = operators.build("conv2d_nhwc", {"h": 56, "w": 56, "ci": 64, "co": 64, "k": 3, "pad": 1})
    key = "2b5729f9ee704eb0e8d97d0adc0315155c1cc4cfffa9a1661bd1487b58212a53"
    assert plain.key == key
    assert "allowed_error" not in plain.to_json()
    allowed = plain.allowing(1e-3)
    assert allowed.key not in (key, plain.allowing(1e-4).key)
    assert allowed.allowing(None).key == key
    assert Workload.from_json(json.loads(json.dumps(allowed.to_json()))) == allowed
    assert allowed.normalised().allowed_error == 1e-3


def test_the_spellings_of_an_allowance_agree() -> None:
    text = "conv2d_nhwc:N=1,H=8,W=8,CI=3,CO=4,K=3,pad=1"
    operator = parse_workload(f"{text},allow_error=1e-3")
    assert operator.name == f"{text},allow_error=0.001"
    assert parse_workload(operator.name).key == operator.key
    assert parse_workload(text, allow_error=1e-3).key == operator.key
    notation = parse_workload(
        expr="Y[n,h,w,o] += X[n,h+r-1,w+s-1,c] * W[r,s,c,o]",
        tensors=["X=f32[1,8,8,3]", "W=f32[3,3,3,4]"],
        allow_error=1e-3,
    )
    assert notation.key == operator.key


@pytest.mark.parametrize("bad", [0, 0.0, -1e-3, 1.0, 2, float("nan"), "1e-3", True])
def test_an_allowance_is_a_number_between_0_and_1(bad: object) -> None:
    document = conv().to_json() | {"allowed_error": bad}
    with pytest.raises(WorkloadError) as caught:
        Workload.from_json(document)
    assert (caught.value.code, caught.value.pointer) == ("bad_error", "/allowed_error")


def test_an_operator_refuses_an_allowance_that_is_no_number() -> None:
    with pytest.raises(WorkloadError, match="allow_error must be a number"):
        conv(allow_error="little")
    with pytest.raises(WorkloadError, match="given twice"):
        parse_workload("conv2d_nhwc:H=8,W=8,CI=3,CO=4,K=3,allow_error=1e-3", allow_error=1e-3)


def test_a_rewrite_stands_before_every_primitive() -> None:
    step = Winograd("s0", ((1, 4), (2, 4)))
    trace = Trace((step, Split("s0.d0", 2)))
    assert trace.rewrites == (step,)
    assert str(trace).startswith("Winograd(stage='s0', tiles=((1, 4), (2, 4)))\n")
    with pytest.raises(ScheduleError, match="rewrites must precede all primitives"):
        lower(conv(), Trace((Split("s0.d1", 2), step)))


def test_a_rewritten_trace_replays_in_another_process() -> None:
    trace = Trace((Winograd("s0", ((1, 4), (2, 2))), Split("s4.d3", 2)))
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace
    workload = conv(H=9, W=7)
    code = (
        "import json, sys\n"
        "from tilewright.schedules.lowering.lower import lower\n"
        "from tilewright.schedules.nest.printer import to_text\n"
        "from tilewright.schedules.trace import Trace\n"
        "from tilewright.schedules.workload.workload import Workload\n"
        "w, t = json.load(sys.stdin)\n"
        "sys.stdout.write(to_text(lower(Workload.from_json(w), Trace.from_json(t))))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([workload.to_json(), trace.to_json()]),
        capture_output=True,
        text=True,
        check=True,
    )
    from tilewright.schedules.nest.printer import to_text

    assert said.stdout == to_text(lower(workload, trace))


def test_the_products_of_a_rewrite_are_not_rewritten_again() -> None:
    """One dimension after the other would be charged as two cheap ones, not as their product."""
    workload = conv().allowing(2e-4).normalised()
    first = Winograd(reduction_of(workload), ((1, 4),))
    once = first.rewrite(workload)
    for stage in once.stages:
        for dim in range(len(stage.axes)):
            with pytest.raises(ScheduleError):
                Winograd(stage.name, ((dim, 4),)).rewrite(once)
