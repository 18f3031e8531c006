"""A sample of a workload's elements is evaluated to what all of them are evaluated to."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.fuzz.generate import random_computation
from tests.fuzz.spell_json import to_document
from tests.support.schedules.reference_cases import (
    conv2d,
    conv2d_transposed,
    grouped_conv1d,
    layernorm,
    random_workload,
    small_integers,
    softmax,
)
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.reference import contract as reference_contract
from tilewright.schedules.reference import error_bound
from tilewright.schedules.reference import evaluate as reference
from tilewright.schedules.reference import sample as sampling
from tilewright.schedules.reference.error_bound import bounded_outputs, evaluate_with_bound
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.sample import Sample, demanded, places_of, taken
from tilewright.schedules.workload.workload import Workload


def _notation(text: str, **tensors: str) -> Callable[[], Workload]:
    return lambda: from_notation(text, [parse_tensor_spec(f"{n}={s}") for n, s in tensors.items()])


CHAINS: dict[str, Callable[[], Workload]] = {
    "convolution": lambda: conv2d(9, 3, 8, 3, pad=1),
    "strided": lambda: conv2d(11, 3, 8, 3, pad=2, stride=2),
    "transposed": lambda: conv2d_transposed(6, 3, 8, 3, pad=1, stride=2),
    "grouped": lambda: grouped_conv1d(12, 3, 4, 5, 3),
    "softmax": lambda: softmax(9, 12),
    "layernorm": lambda: layernorm(9, 12),
    "convolutions": _notation(
        "U[i,f] += X[i+k-1,c] * W[k,c,f]; V[i] += max(U[2*i+k,f], 0.0)",
        X="f32[20,3]", W="f32[3,3,8]", V="f32[8]",
    ),
    "attention": _notation(
        "S[i,j] += Q[i,d] * K[j,d]; M[i] max= where(j <= i, S[i,j], -1e30);"
        " E[i,j] = where(j <= i, exp(S[i,j] - M[i]), 0.0); L[i] += E[i,j];"
        " P[i,d] += E[i,j] * V[j,d]; O[i,d] = P[i,d] / L[i]",
        Q="f32[14,5]", K="f32[14,5]", V="f32[14,6]",
    ),
    "blocks": _notation("Y[i] += X[i//3,k] * Z[i%3,k]; R[i,j] = Y[i]*Y[j]", X="f32[7,4]",
                        Z="f32[3,4]", R="f32[21,21]"),
}  # fmt: skip


def _drawn_sample(workload: Workload, rng: random.Random) -> Sample:
    """Some coordinates along some dimensions of the outputs, and what those need."""
    grids = {}
    for tensor in workload.output_tensors:
        shares = [rng.choice((0.2, 0.5, 1.0)) for _ in tensor.shape]
        grids[tensor.name] = tuple(
            None if share == 1.0 else places_of((n for n in range(e) if rng.random() < share), e)
            for e, share in zip(tensor.shape, shares, strict=True)
        )
    return demanded(workload, grids)


def assert_restricted(workload: Workload, rng: random.Random) -> None:
    inputs = small_integers(workload, rng)
    sample = _drawn_sample(workload, rng)
    for name, got, whole in zip(
        workload.outputs,
        evaluate(workload, inputs, sample),
        evaluate(workload, inputs),
        strict=True,
    ):
        np.testing.assert_allclose(got, taken(whole, sample[name]), rtol=1e-12, atol=1e-12)
    bounded = evaluate_with_bound(workload, inputs, sample=sample)
    everything = evaluate_with_bound(workload, inputs)
    for name, (values, own), (wanted, bound) in zip(
        workload.outputs, bounded, everything, strict=True
    ):
        np.testing.assert_allclose(values, taken(wanted, sample[name]), rtol=1e-12, atol=1e-12)
        # What makes operations exact is looked for in some of the values: in others, found or not.
        room = taken(bound, sample[name])
        both = (own > 0) & (room > 0) & np.isfinite(own) & np.isfinite(room)
        assert (np.abs(np.log2(own[both] / room[both])) <= 1).all()


@pytest.fixture
def _sampled_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_WHOLE", 1.0)


@pytest.mark.usefixtures("_sampled_always")
@pytest.mark.parametrize("name", CHAINS)
def test_a_sample_of_a_chain_is_the_whole_restricted(name: str) -> None:
    for seed in range(12):
        assert_restricted(CHAINS[name](), random.Random(seed))


@pytest.mark.usefixtures("_sampled_always")
@pytest.mark.parametrize("block", range(6))
def test_a_sample_of_random_workloads_is_the_whole_restricted(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block % 2:
        monkeypatch.setattr(reference, "MAX_BOX_POINTS", 5)
        monkeypatch.setattr(error_bound, "MAX_BOX_POINTS", 5)
        monkeypatch.setattr(reference_contract, "MAX_FACTOR_POINTS", 7)
    for seed in range(block * 30, block * 30 + 30):
        rng = random.Random(seed)
        assert_restricted(random_workload(rng), rng)


@pytest.mark.usefixtures("_sampled_always")
@pytest.mark.parametrize("block", range(4))
def test_a_sample_of_random_documents_is_the_whole_restricted(block: int) -> None:
    sampled = 0
    for seed in range(block * 40, block * 40 + 40):
        rng = random.Random(seed)
        try:
            workload = Workload.from_json(to_document(random_computation(rng), rng))
        except WorkloadError:
            continue
        assert_restricted(workload, rng)
        sampled += 1
    assert sampled >= 20


def test_a_sample_asks_for_whole_reductions_and_no_more() -> None:
    workload = CHAINS["attention"]()
    rows = places_of([0, 13], 14)
    sample = demanded(workload, {"O": (rows, places_of([2], 6))})
    assert rows is not None
    found = {n: [None if p is None else p.values.tolist() for p in g] for n, g in sample.items()}
    assert found["S"] == [[0, 13], None]
    assert found["L"] == [[0, 13]]
    assert found["P"] == [[0, 13], [2]]


def test_a_sample_of_terms_that_are_all_padding_asks_for_something() -> None:
    workload = _notation("U[i] = X[i] * 2.0; V[i] = U[i-4]", X="f32[9]", V="f32[9]")()
    sample = demanded(workload, {"V": (places_of([0, 1], 9),)})
    (got,) = evaluate(workload, [np.arange(9, dtype=np.float32)], sample)
    assert got.tolist() == [0.0, 0.0]


def test_continuous_inputs_are_sampled_too() -> None:
    workload = _notation("C[i,j] += A[i,k] * B[k,j]", A="f32[40,600]", B="f32[600,40]")()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape).astype(np.float32) for t in workload.inputs]
    places = places_of([0, 5, 39], 40)
    sample = demanded(workload, {"C": (places, places)})
    ((values, bound),) = bounded_outputs(workload, inputs, continuous=True, sample=sample)
    ((whole, whole_bound),) = bounded_outputs(workload, inputs, continuous=True)
    assert values.shape == (3, 3)
    np.testing.assert_allclose(values, taken(whole, sample["C"]), rtol=1e-12)
    assert bound is not None
    assert whole_bound is not None
    assert bound.max() < 4 * whole_bound.max()
