"""Only terms that count are evaluated, and results are those of all."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.reference import active as active_module
from tilewright.schedules.reference import error_bound
from tilewright.schedules.reference import evaluate as reference
from tilewright.schedules.reference.active import Active, active_boxes, active_share
from tilewright.schedules.reference.cost import predicted_secs
from tilewright.schedules.reference.error_bound import evaluate_with_bound
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.reference.reads import IterationBox, full_box, leading_tiles
from tilewright.schedules.reference.sample import demanded, places_of, taken
from tilewright.schedules.workload.tensors import Stage
from tilewright.schedules.workload.workload import Workload

SPECS = {
    "X": "f32[24]", "A": "f32[24,24]", "B": "f32[24,24]", "W": "f32[4,6]", "I": "f32[12,5]",
    "N": "i32[24]", "F": "f32[7]", "R": "f32[9,7]", "O": "f32[24,6]", "T": "f32[40]",
}  # fmt: skip
FORMS = {
    "prefix sum": "Y[j] += where(k <= j, X[k], 0.0)",
    "suffix maximum": "Y[j] max= where(k >= j, X[k], -1e30)",
    "maximum beside zero": "Y[j] max= where(k <= j - 3, X[k] - 5.0, 0.0)",
    "minimum of a band": "Y[j] min= where(k <= j + 2, where(k >= j - 2, X[k], 7.0), 7.0)",
    "banded pairs": "Y[i,j] += where(k <= j, where(k >= i, A[i,k] - B[k,j], 0.0), 0.0)",
    "triangle of sums": "Y[i,j] max= where(k <= j, A[i,k] + B[k,j], -1e30)",
    "transposed convolution": "O[y,f] += W[y+1-2*i,f] * I[i,c]",
    "overlapping frames": "T[t] += F[t-4*m] * R[m,t-4*m]",
    "integers": "Y[j] += where(k <= j, N[k], 0)",
    "never": "Y[j] += where(k >= j + 100, X[k], 0.0)",
    "never the greatest": "Y[j] max= where(k >= j + 100, X[k], -3.0)",
    "one of each": "Y[j] += where(k == j, X[k], 0.0)",
}


def workload_of(form: str) -> Workload:
    text = FORMS[form]
    output = text[0]
    given = [parse_tensor_spec(f"{n}={s}") for n, s in SPECS.items() if f"{n}[" in text]
    if output not in SPECS:
        shape = "24,24" if "Y[i,j]" in text else "24"
        given.append(parse_tensor_spec(f"Y={'i32' if form == 'integers' else 'f32'}[{shape}]"))
    return from_notation(text, given)


def _everything(stage: Stage, whole: IterationBox, max_points: int, finite: object) -> Active:
    return Active(list(leading_tiles(whole, max_points)), [], None, disjoint=False)


def drawn(workload: Workload, seed: int, special: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for tensor in workload.inputs:
        values = rng.integers(-4, 5, tensor.shape).astype(tensor.dtype.numpy)
        if special and tensor.dtype.is_float:
            where = rng.random(tensor.shape) < 0.1
            values[where] = rng.choice([np.nan, np.inf, -np.inf], int(where.sum()))
        arrays.append(values)
    return arrays


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
def test_terms_that_are_left_out_change_nothing(
    form: str, special: bool, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = workload_of(form)
    name = workload.outputs[0]
    places = places_of([0, 3, 4, 11, 19, 23], workload.output_tensors[0].shape[0])
    grid = (places, *((None,) * (len(workload.output_tensors[0].shape) - 1)))
    sample = demanded(workload, {name: grid}) if sampled else None
    inputs = [drawn(workload, seed, special) for seed in range(6)]
    monkeypatch.setattr(active_module, "_SMALLEST_POINTS", 4)
    for module in (reference, error_bound):
        monkeypatch.setattr(module, "MAX_BOX_POINTS", 60)
    found = [(evaluate(workload, some, sample), evaluate_with_bound(workload, some, sample=sample))
             for some in inputs]  # fmt: skip
    for module in (reference, error_bound):
        monkeypatch.setattr(module, "active_boxes", _everything)
    for (values, bounded), some in zip(found, inputs, strict=True):
        whole, whole_bounded = evaluate(workload, some), evaluate_with_bound(workload, some)
        wanted = [*whole, *whole_bounded[0]]
        if sample is not None:
            wanted = [taken(array, sample[name]) for array in wanted]
        np.testing.assert_array_equal(values[0], wanted[0])
        np.testing.assert_array_equal(bounded[0][0], wanted[1])
        if not (sampled or special):
            np.testing.assert_allclose(bounded[0][1], wanted[2], rtol=1e-9)


@pytest.mark.parametrize(
    ("form", "share"),
    [
        ("prefix sum", 0.7),
        ("triangle of sums", 0.7),
        ("transposed convolution", 0.35),
        ("overlapping frames", 0.45),
        ("minimum of a band", 0.45),
    ],
)
def test_next_to_nothing_is_evaluated_where_a_condition_fails(
    form: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_module, "_SMALLEST_POINTS", 4)
    stage = workload_of(form).stages[-1]
    whole = full_box(stage.all_axes)
    active = active_boxes(stage, whole, 1 << 18, lambda: True)
    evaluated = sum(box.points for box in active.boxes)
    assert evaluated <= share * whole.points
    predicted = active_share(stage, whole) * whole.points
    assert 0.5 * evaluated <= predicted <= 2 * evaluated


def test_products_with_zero_count_where_the_other_factor_may_not_be_finite() -> None:
    stage = workload_of("transposed convolution").stages[-1]
    whole = full_box(stage.all_axes)
    active = active_boxes(stage, whole, 1 << 18, lambda: False)
    assert sum(box.points for box in active.boxes) == whole.points


def test_long_bands_cost_their_points() -> None:
    """An inverse short-time Fourier transform by definition: 8 of 4096 frames reach a sample."""
    text = "T[t] += F[t-128*m] * R[m,t-128*m]"
    shapes = {"F": "f32[1024]", "R": "f32[512,1024]", "T": "f32[66560]"}
    given = [parse_tensor_spec(f"{n}={s}") for n, s in shapes.items()]
    workload = from_notation(text, given)
    stage = workload.stages[-1]
    whole = full_box(stage.all_axes)
    assert active_share(stage, whole) < 0.05
    assert predicted_secs(workload, bounded=False) < 0.1
