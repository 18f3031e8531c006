"""Checks that compare a sample of the outputs: how much, that it finds what is wrong wherever a
schedule may put it, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.tuner import planted_kernels as planted
from tilewright.schedules.algebra.narrow import narrowed
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.record import Evidence, MeasureResult, MeasureStatus
from tilewright.schedules.reference import cost
from tilewright.schedules.reference import evaluate as reference
from tilewright.schedules.reference.cost import ReferenceCosts, predicted_secs
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.math import reduce as numpy_reduce
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.judge import sampling
from tilewright.tuner.judge.cases import WorkloadCases, open_cases, refuse_unaffordable
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.judge.sampling import affordable, coordinates
from tilewright.tuner.measure.checking.runner_client import RunnerClient

Array = np.ndarray[Any, Any]


def _notation(text: str, **tensors: str) -> Workload:
    return from_notation(text, [parse_tensor_spec(f"{n}={s}") for n, s in tensors.items()])


WORKLOADS = {
    "product": _notation("C[i,j] += A[i,k] * B[k,j]", A="f32[200,24]", B="f32[24,320]"),
    "softmax": _notation(
        "M[i] max= X[i,j]; E[i,j] = exp(X[i,j] - M[i]); S[i] += E[i,j]; Y[i,j] = E[i,j] / S[i]",
        X="f32[200,320]",
    ),
    "scaled": _notation("Y[i,j] = max(X[i,j] * S[j] + B[j], 0.0)", X="f32[200,320]",
                        S="f32[320]", B="f32[320]"),
    "convolution": _notation("Y[f,x] += X[c,x+r-1] * W[f,c,r]", X="f32[6,320]",
                             W="f32[200,6,3]", Y="f32[200,320]"),
}  # fmt: skip


def _sampled(workload: Workload, share: float = 0.1) -> WorkloadCases:
    """Cases that have the seconds for a `share` of the reference's work only."""
    workload = workload.normalised()
    oracle = Oracle(workload)
    every = len(oracle._attempts) + 1
    secs = share * every * predicted_secs(workload, bounded=True)
    return WorkloadCases(Oracle(workload, 0, (), secs))


def _right(workload: Workload, inputs: tuple[Array, ...]) -> list[Array]:
    with np.errstate(all="ignore"):
        pairs = zip(workload.output_tensors, evaluate(workload, inputs), strict=True)
        return [
            narrowed(v, t.dtype) if t.dtype is DType.BF16 else v.astype(t.dtype.numpy)
            for t, v in pairs
        ]


# Where mistakes of schedules lie: a tail of rows, of columns, a lane, a block, a share, a phase.
PLANTED: dict[str, tuple[slice, slice]] = {
    "last row": (slice(-1, None), slice(None)),
    "last columns": (slice(None), slice(-3, None)),
    "first column": (slice(None), slice(1)),
    "a lane": (slice(None), slice(5, None, 16)),
    "a lane of one block of rows": (slice(96, 128), slice(11, None, 16)),
    "a block": (slice(64, 96), slice(128, 192)),
    "the second of two threads": (slice(100, None), slice(None)),
    "the last of eight threads": (slice(175, None), slice(None)),
    "a phase of rows": (slice(2, None, 3), slice(None)),
    "a phase of columns": (slice(None), slice(1, None, 2)),
    "the tail of tiles of 6 rows": (slice(198, None), slice(None)),
    "the last column of each tile of 64": (slice(None), slice(63, None, 64)),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_right_outputs_pass_and_planted_mistakes_are_found(name: str) -> None:
    cases = _sampled(WORKLOADS[name])
    workload = cases.oracle.workload
    missed = set(PLANTED)
    fractions = []
    for case in cases.full():
        outputs = _right(workload, case.inputs)
        problem = case.check(outputs)
        assert problem is None, problem
        fractions.append(case.sampled_fraction)
        for mistake in sorted(missed):
            wrong = [output.copy() for output in outputs]
            part = wrong[0][PLANTED[mistake]]
            part[...] = np.where(np.isfinite(part), part + 1 + abs(part), 0)
            if case.check(wrong) is not None:
                missed.discard(mistake)
    assert not missed
    assert 0 < min(fractions) < 0.5


def test_all_is_compared_where_there_are_the_seconds() -> None:
    for workload in WORKLOADS.values():
        cases = open_cases({"workload": workload.to_json(), "seed": 0})
        assert all(case.sampled_fraction == 1.0 for case in cases.full())


def test_the_quick_case_compares_the_most() -> None:
    cases = _sampled(WORKLOADS["product"], 0.05)
    quick, *others = (case.sampled_fraction for case in cases.full())
    assert all(quick > other for other in others)


def test_a_message_names_the_element_in_the_whole_output() -> None:
    case = _sampled(WORKLOADS["product"], 0.02).quick
    outputs = [np.zeros((200, 320), np.float32)]
    outputs[0][:] = evaluate(WORKLOADS["product"], case.inputs)[0]
    outputs[0][199, 319] += 1
    problem = case.check(outputs)
    assert problem is not None
    assert "[199, 319]" in problem
    assert "of those compared" in problem


def test_samples_of_cases_differ_and_have_ends_and_parts() -> None:
    rng = np.random.default_rng(0)
    first, second = (coordinates(1000, 100, rng).tolist() for _ in range(2))
    assert first != second
    for found in (first, second):
        assert {0, 1, 2, 997, 998, 999} <= set(found)
        assert len(found) <= 110
        assert all(any(p <= c < p + 40 for c in found) for p in range(0, 1000, 40))
        assert {c % 16 for c in found} == set(range(16))
    assert coordinates(5, 100, rng).tolist() == [0, 1, 2, 3, 4]


def test_the_size_of_a_sample_is_found_with_few_coordinates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scan is evaluated completely, whatever is compared. Each attempt lists its coordinates,
    which took a minute and a half for 64 million elements."""
    listed: list[int] = []

    def counted(extent: int, count: int, rng: np.random.Generator) -> Any:
        listed.append(count)
        return coordinates(extent, count, rng)

    monkeypatch.setattr(sampling, "coordinates", counted)
    elements = 1 << 26
    scan = _notation("S[k] = cumsum(X[k], k)", X=f"f32[{elements}]")
    assert affordable([scan], 0.1, bounded=True).count is None
    assert sum(listed) < elements // 2


def _long_sum(terms: int) -> Workload:
    return _notation("S[j] += X[i] * Z[i,j] + 0.5", X=f"f32[{terms}]", Z=f"f32[{terms},1]")


def test_what_no_sample_makes_affordable_is_refused_with_what_would_do() -> None:
    refuse_unaffordable(_long_sum(1 << 16), 1.0)
    with pytest.raises(
        WorkloadError, match=r"the reference needs about 0\.\d+ s .* a full check has 0.01 s"
    ):
        refuse_unaffordable(_long_sum(1 << 22), 0.01)


def test_a_larger_sample_does_not_make_a_workload_too_large() -> None:
    """Its smallest sample is affordable, and further elements would cost little more."""
    workload = _notation("S[0] += X[i,j]; Y[i,j] = X[i,j] - S[0]", X="f32[2000,320]")
    least = affordable([workload], 0.0, bounded=True, most_secs=0.0)
    more = affordable([workload], 0.0, bounded=True)
    assert least.secs < more.secs
    between = (least.secs + more.secs) / 2
    assert affordable([workload], 0.0, bounded=True, most_secs=between).secs <= between
    exact = Oracle(workload).plan.exact
    least = affordable([workload], 0.0, bounded=not exact, most_secs=0.0)
    refuse_unaffordable(workload, 1.01 * least.secs)


def test_cases_that_do_not_fit_are_left_out() -> None:
    workload = _long_sum(1 << 18)
    one = predicted_secs(workload, bounded=True)
    every = list(Oracle(workload).full())
    some = list(Oracle(workload, check_secs=2.5 * one).full())
    assert 1 <= len(some) < len(every)


def test_cases_are_few_where_a_kernel_runs_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tuner.judge.oracle.kernel_secs", lambda _: 10.0)
    oracle = Oracle(WORKLOADS["softmax"], check_secs=4.0)
    kinds = [attempt.kinds[0] for attempt in oracle._attempts]
    assert len(kinds) == 4
    assert {InputKind.NORMAL, InputKind.LONE_TOP, InputKind.SUNK} <= set(kinds)


@pytest.mark.parametrize(("rows", "kinds"), [(64, 5), (4096, 2)])
def test_many_elements_that_nothing_reduces_are_chances_enough(rows: int, kinds: int) -> None:
    workload = _notation("Y[i,j] = X[i,j] * 0.5 + 1.0", X=f"f32[{rows},256]")
    assert len(Oracle(workload)._full_kinds()) == kinds


def test_the_extent_is_what_is_affordable() -> None:
    workload = WORKLOADS["convolution"]
    everything = affordable([workload], 1e9, bounded=True)
    assert everything.count is None
    half = affordable([workload], 0.5 * everything.secs, bounded=True)
    assert half.count is not None
    assert half.secs <= 0.5 * everything.secs
    (sample,) = half.samples([workload], 1)
    again = predicted_secs(workload, sample, bounded=True)
    assert again == pytest.approx(half.secs, rel=0.5)


def test_a_reduction_that_every_element_needs_does_not_shrink_the_sample() -> None:
    """Whatever the limit, the sum over X is evaluated; further elements of Y cost little."""
    workload = _notation("S[0] += X[i,j]; Y[i,j] = X[i,j] - S[0]", X="f32[2000,320]")
    extent = affordable([workload], 1e-6, bounded=True)
    (sample,) = extent.samples([workload], 0)
    assert sample is not None
    rows, columns = sample["Y"]
    compared = (len(rows) if rows else 2000) * (len(columns) if columns else 320)
    assert compared > 10_000


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_predicted_points_are_those_that_are_evaluated(
    name: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By counts: elements of all arrays that the general path makes."""
    workload = WORKLOADS[name]
    monkeypatch.setattr(cost, "VALUES", ReferenceCosts(1, 1, 1, 1, 1, 1))
    monkeypatch.setattr(cost, "recognise", lambda *_, **__: None)
    monkeypatch.setattr(reference, "recognise", lambda *_, **__: None)
    extent = affordable([workload], share * predicted_secs(workload, bounded=False), bounded=False)
    (sample,) = extent.samples([workload], 0)
    counted = 0
    evaluated = reference._Values._evaluated

    def counting(values: Any, node: Any) -> Array:
        nonlocal counted
        found = evaluated(values, node)
        counted += found.size
        return found

    def counting_reduce(reducer: Any, values: Array, dims: Any) -> Array:
        nonlocal counted
        counted += values.size
        return numpy_reduce(reducer, values, dims)

    monkeypatch.setattr(reference._Values, "_evaluated", counting)
    monkeypatch.setattr(reference, "reduce", counting_reduce)
    inputs = [np.ones(t.shape, np.float32) for t in workload.inputs]
    evaluate(workload, inputs, sample)
    assert counted / 2 <= predicted_secs(workload, sample, bounded=False) <= 2 * counted


def test_evidence_says_what_was_compared() -> None:
    assert str(Evidence(9, 1.0)) == "every element, for 9 sets of inputs"
    assert str(Evidence(1, 1.0)) == "every element, for 1 set of inputs"
    assert str(Evidence(4, 0.025)).startswith("1 in 40 elements, in every block, lane, remainder")


def test_evidence_travels_with_a_result_and_is_left_out_where_there_is_none() -> None:
    result = MeasureResult(MeasureStatus.OK, (1.0,), 1.0, evidence=Evidence(4, 0.25))
    document = result.to_json()
    assert document["evidence"] == {"cases": 4, "sampled_fraction": 0.25}
    assert MeasureResult.from_json(document) == result
    assert "evidence" not in MeasureResult(MeasureStatus.OK, (1.0,), 1.0).to_json()


@pytest.fixture(scope="module")
def sampled_runner() -> Iterator[RunnerClient]:
    workload = _notation("B[i] = A[i] * S[i] + 1.0", A="f32[1001]", S="f32[1001]").normalised()
    document = {"cases": "tilewright.tuner.judge.cases:open_cases", "seed": 0,
                "workload": workload.to_json(), "lanes": 8, "cpus": [],
                "check_secs": 1e-5}  # fmt: skip
    with RunnerClient(document) as client:
        yield client


def _checked(client: RunnerClient, body: str) -> dict[str, Any]:
    head = "int kernel(const float *a, const float *s, float *b, void *ws)"
    job = {"symbol": "kernel", "workspace_bytes": 64, "threads": 1}
    client.submit(job, planted._compiled(f"{head} {{ {body} return 0; }}"), 20.0, "check")
    answer: dict[str, Any] = client.result()
    return answer


RIGHT: Callable[[str], str] = "for (int i = 0; i < N; i++) {0} b[i] = a[i] * s[i] + 1;".format


def test_a_sampled_check_says_so(sampled_runner: RunnerClient) -> None:
    answer = _checked(sampled_runner, RIGHT(""))
    assert answer["status"] == MeasureStatus.OK, answer
    assert answer["evidence"]["cases"] >= 2
    assert 0 < answer["evidence"]["sampled_fraction"] < 1


def test_an_element_that_is_never_written_is_found_wherever_it_is(
    sampled_runner: RunnerClient,
) -> None:
    case = open_cases({**sampled_runner.document}).quick
    compared = set(case.expected[0].grid[0].values.tolist())  # type: ignore[attr-defined]
    outside = next(i for i in range(300, 1001) if i not in compared)
    answer = _checked(sampled_runner, RIGHT(f"if (i != {outside})"))
    assert answer["status"] == MeasureStatus.WRONG_RESULT
    assert f"[{outside}]" in answer["detail"]
