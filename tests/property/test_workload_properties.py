"""Random computations: however one is written, it is one key, one value and one document."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.schedules.algebra.affine import Affine, affine, var
from tilewright.schedules.algebra.comparisons import holds
from tilewright.schedules.algebra.conditions import normal_cond
from tilewright.schedules.algebra.index_text import parse_condition, parse_index
from tilewright.schedules.algebra.scalar import (
    COMMUTATIVE,
    All,
    Binary,
    Cast,
    Compare,
    Eq0,
    Ge0,
    Scalar,
    Select,
    Unary,
    rename_tensors,
    substitute,
)  # fmt: skip
from tilewright.schedules.errors import TilewrightError, WorkloadError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.workload.strict_json import parse_json_text
from tilewright.schedules.workload.tensors import Axis, Stage
from tilewright.schedules.workload.validate import validate
from tilewright.schedules.workload.workload import Workload

EXTENTS = st.sampled_from([1, 2, 3, 5, 7])


@st.composite
def notation_texts(draw: st.DrawFn) -> tuple[str, dict[str, tuple[str, tuple[int, ...]]]]:
    """A contraction with a window, guards and an epilogue, over random extents."""
    m, n, k, r = (draw(EXTENTS) for _ in range(4))
    shapes = {"A": ("f32", (m + r, k)), "B": ("f32", (k, n)), "V": ("f32", (r,))}
    factors = draw(st.permutations(["A[i + r, k]", "B[k, j]", "V[r]"]))
    product = " * ".join(factors)
    if draw(st.booleans()):
        product = f"where(i {draw(st.sampled_from(['>=', '<', '==']))} j, {product}, 0)"
    if draw(st.booleans()):
        product = product.replace("A[i + r, k]", f"A[i + r - {draw(st.integers(1, 3))}, k]")
    tail = draw(st.sampled_from(["max(T[i,j], 0)", "T[i,j] + V[0]", "exp(T[i,j]) / (1 + B[0,j])"]))
    return f"T[i,j] += {product}; Y[i,j] = {tail}", shapes


def workload_of(case: tuple[str, dict[str, tuple[str, tuple[int, ...]]]]) -> Workload:
    text, shapes = case
    return from_notation(text, shapes, {"i": shapes["A"][1][0]})


def rewritten(workload: Workload, rng: random.Random) -> Workload:
    """The same computation under other names, operand orders and orders of reduction axes."""
    names = {t: f"t{rng.randrange(10**9)}_{n}" for n, t in enumerate(workload.tensors)}
    stages: list[Stage] = []
    for stage in workload.stages:
        axes = {a.name: f"x{rng.randrange(10**9)}_{a.name}" for a in stage.all_axes}
        body = substitute(rename_tensors(stage.body, names), {o: var(n) for o, n in axes.items()})
        reduce_axes = [Axis(axes[a.name], a.extent) for a in stage.reduce_axes]
        rng.shuffle(reduce_axes)
        renamed = replace(
            stage,
            tensor=replace(stage.tensor, name=names[stage.name]),
            axes=tuple(Axis(axes[a.name], a.extent) for a in stage.axes),
            body=swapped(body, rng),
        )
        stages.append(renamed.reducing_over(tuple(reduce_axes)))
    inputs = tuple(replace(t, name=names[t.name]) for t in workload.inputs)
    return Workload(inputs, tuple(stages), tuple(names[n] for n in workload.outputs))


def swapped(node: Scalar, rng: random.Random) -> Scalar:
    """`node` with operands of commutative operations and conditions in another order."""
    match node:
        case Binary() | Compare():
            a, b = swapped(node.a, rng), swapped(node.b, rng)
            if node.op in COMMUTATIVE and rng.random() < 0.5:
                a, b = b, a
            return replace(node, a=a, b=b)
        case Unary() | Cast():
            return replace(node, x=swapped(node.x, rng))
        case All():
            return All(tuple(rng.sample(node.conds, len(node.conds))))
        case Select():
            sides = swapped(node.on_true, rng), swapped(node.on_false, rng)
            return Select(swapped(node.cond, rng), *sides)
        case _:
            return node


@given(notation_texts(), st.integers(0, 2**32))
def test_the_key_does_not_depend_on_how_it_is_written(
    case: tuple[str, dict[str, tuple[str, tuple[int, ...]]]], seed: int
) -> None:
    workload = workload_of(case)
    other = rewritten(workload, random.Random(seed))
    validate(other)
    assert other.normalised() == workload.normalised()
    assert other.key == workload.key


@given(notation_texts())
def test_the_normal_form_and_the_document_compute_the_same(
    case: tuple[str, dict[str, tuple[str, tuple[int, ...]]]],
) -> None:
    workload = workload_of(case)
    normal = workload.normalised()
    validate(normal)
    assert normal.normalised() == normal
    read = Workload.from_json(json.loads(json.dumps(workload.to_json())))
    assert read == workload
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, t.shape).astype(np.float32) for t in workload.inputs]
    with np.errstate(all="ignore"):
        wanted, found = evaluate(workload, inputs), evaluate(normal, inputs)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def indices() -> st.SearchStrategy[Affine]:
    leaves = st.one_of(st.sampled_from([var("i"), var("j")]), st.integers(-9, 9).map(affine))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
            st.tuples(inner, st.integers(-4, 4)).map(lambda p: p[0] * p[1]),
            st.tuples(inner, st.integers(1, 4)).map(lambda p: p[0] // p[1]),
            st.tuples(inner, st.integers(1, 4)).map(lambda p: p[0] % p[1]),
        ),
        max_leaves=5,
    )


@given(indices())
def test_the_text_of_an_index_reads_back(index: Affine) -> None:
    assert parse_index(str(index)) == index


@given(indices(), st.booleans())
def test_a_condition_in_normal_form_means_the_same_and_reads_back(
    index: Affine, equality: bool
) -> None:
    cond = Eq0(index) if equality else Ge0(index)
    normal = normal_cond(cond)
    for i in range(-5, 6):
        for j in range(-5, 6):
            assert holds(cond, {"i": i, "j": j}) == holds(normal, {"i": i, "j": j})
    assert normal_cond(parse_condition(str(normal))) == normal


@given(st.text(alphabet="ABCij012[](),;=+-*/%<>!&|. \nmaxinwhereexp", max_size=60))
def test_no_text_is_more_than_an_error(text: str) -> None:
    with suppress(TilewrightError):
        from_notation(text, {"A": ("f32", (2, 3)), "B": ("f32", (3, 2))}, {})
    with suppress(TilewrightError):
        parse_workload(text)


def json_values() -> st.SearchStrategy[object]:
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6),
        st.sampled_from(["f32", "i", "i + 1", "load", "mul", "sum", "A", "C"]),
    )  # fmt: skip
    keys = st.sampled_from(["op", "a", "b", "x", "name", "index", "axes", "body", "zz"])
    return st.recursive(
        leaves,
        lambda v: st.one_of(st.lists(v, max_size=4), st.dictionaries(keys, v, max_size=4)),
        max_leaves=8,
    )


MATMUL = parse_workload("conv2d_nhwc:H=5,W=4,CI=2,CO=3,K=3,pad=1,epilogue=bias").to_json()


@st.composite
def damaged_documents(draw: st.DrawFn) -> object:
    """A valid document with one value anywhere in it replaced by something else."""
    document = json.loads(json.dumps(MATMUL))
    here: object = document
    while True:
        keys: list[object] = list(here) if isinstance(here, dict) else list(range(len(here)))  # type: ignore[arg-type]
        key = draw(st.sampled_from(keys))
        below = here[key]  # type: ignore[index]
        if not isinstance(below, dict | list) or not below or draw(st.integers(0, 4)) == 0:
            here[key] = draw(json_values())  # type: ignore[index]
            return document
        here = below


@given(damaged_documents())
def test_a_damaged_document_is_read_or_refused(document: object) -> None:
    with suppress(WorkloadError):
        workload = Workload.from_json(document)
        validate(workload)
        assert Workload.from_json(workload.to_json()) == workload
        assert len(workload.key) == 64


@given(st.binary(max_size=40), st.integers(0, 400))
def test_damaged_text_is_read_or_refused(noise: bytes, position: int) -> None:
    text = json.dumps(MATMUL).encode()
    with suppress(WorkloadError):
        Workload.from_json(parse_json_text(text[:position] + noise + text[position + len(noise) :]))


@pytest.mark.parametrize("guard", ["i > 8", "i >= 0", "i < 10", "i + 1 >= 1", "i == 9"])
def test_a_bad_read_is_refused_whatever_the_guard(guard: str) -> None:
    document = from_notation("Y[i] = X[i]", {"X": ("f32", (10,))}).to_json()
    document["stages"][0]["body"] = {
        "op": "select",
        "cond": {"op": "all", "conds": [guard]},
        "on_true": {"op": "load", "tensor": "X", "index": ["i + 1"]},
        "on_false": {"op": "const", "value": 0, "dtype": "f32"},
    }
    with pytest.raises(WorkloadError, match="may be out of bounds"):
        Workload.from_json(document)
