"""`import tilewright`: the public names, their documentation, and where results are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.support.paths import ROOT
from tilewright.schedules.algebra.functions import NAMED
from tilewright.schedules.errors import WorkloadError

MATMUL = "matmul:M=8,N=8,K=8"
SIMULATED = {"measurer": "simulated:", "budget": tw.Budget(trials=2)}


def test_every_public_name_resolves_and_is_listed_by_dir() -> None:
    for name in tw.__all__:
        assert getattr(tw, name) is not None
    assert set(tw.__all__) <= set(dir(tw))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tw.nothing  # type: ignore[attr-defined]


def test_the_page_documents_exactly_the_public_names() -> None:
    text = (ROOT / "docs" / "python_api.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert documented == set(tw.__all__)


def test_the_page_has_an_array_program_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "own.sqlite"))
    text = (ROOT / "docs" / "python_api.md").read_text(encoding="utf-8")
    scope = {"np": np, "tw": tw}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1], scope)
    np.testing.assert_allclose(scope["y"], np.full((96, 80), 1 / 80), rtol=1e-5)


def test_every_scalar_function_is_public() -> None:
    assert set(NAMED) <= set(tw.__all__)


def test_nothing_imports_a_folder_by_its_bare_name() -> None:
    """That would load a second copy of the package wherever the repository is on sys.path."""
    bare = re.compile(
        r"^\s*(?:from|import) (schedules|costmodel|tuner|db|service)\b(?! import \w+ as \w+$)"
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("schedules", "costmodel", "tuner", "db", "service", "tests", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if bare.match(line)
    ]
    assert not found


def test_notation_operators_and_documents_are_parsed(tmp_path: Path) -> None:
    notation = tw.parse(
        "C[i,j] += A[i,k] * B[k,j]", tensors=["A=f32[8,8]", "B=f32[8,8]"], name="mine"
    )
    assert notation.key == tw.parse(MATMUL).key
    assert notation.name == "mine"
    document = tmp_path / "workload.json"
    document.write_text(json.dumps(notation.to_json()))
    assert tw.parse(str(document)).key == notation.key
    with pytest.raises(WorkloadError, match="matmul"):
        tw.parse("matmull:M=8")


def test_a_second_call_reads_what_the_first_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = tmp_path / "machine.json"
    machine.write_text("{}")
    monkeypatch.setenv("TILEWRIGHT_DB", str(tmp_path / "own.sqlite"))

    def run(**more: object) -> tw.TuneReport:
        return tw.tune(MATMUL, measurer=f"simulated:{machine}", budget=tw.Budget(2), **more)  # type: ignore[arg-type]

    assert run().trials["measured_now"] == 2
    assert run().trials["measured_now"] == 0
    assert run(database=":memory:").trials["measured_now"] == 2
    with tw.open_database() as store:
        assert store.counts().records > 0
        assert run(database=store).trials["measured_now"] == 0
        assert store.counts().records > 0, "a store that was passed in stays open"


def test_a_kernel_is_built_from_the_stored_best_and_says_what_it_is(tmp_path: Path) -> None:
    kernel = tw.build(MATMUL, database=tmp_path / "none.sqlite")
    assert repr(kernel) == "<Kernel matmul:M=8,N=8,K=8 (A: f32[8,8], B: f32[8,8]) -> C: f32[8,8]>"
    a = tw.empty((8, 8))
    a[:] = 1.0
    assert np.all(kernel(a, a) == 8.0)
    assert not (tmp_path / "none.sqlite").exists(), "building a kernel makes no database"


@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8])
def test_integers_of_numpy_are_integers(number: Callable[[int], Any]) -> None:
    """Sizes that are computed from arrays are NumPy's integers."""
    same = tw.operators.matmul(M=number(8), N=number(8), K=number(8))
    assert same == tw.parse(MATMUL).named(same.name)
    text = "Y[i,j] += where(k <= j, A[i,k], 0.0)"
    tensors = ["A=f32[3,8]"]
    assert tw.parse(text, tensors=tensors, ranges={"j": number(4)}) == tw.parse(
        text, tensors=tensors, ranges=["j=4"]
    )
    budget = tw.Budget(trials=number(1), seconds=number(60))
    given = {"threads": number(1), "seed": number(3), "database": ":memory:"}
    report = tw.tune(MATMUL, budget=budget, **given)
    assert report.best is not None
    assert json.loads(json.dumps(report.to_json()))["seed"] == 3
    assert tw.tune_many([MATMUL], budget=budget, **given).complete
    kernel = tw.build(MATMUL, threads=number(1))
    assert np.shape(kernel(tw.empty((number(8), 8)), tw.empty((8, 8)))) == (8, 8)
    assert tw.empty((number(200), number(200))).shape == (200, 200)
    x = tw.placeholder("x", (number(6), 5))
    for made in (x.sum(number(1)), x.reshape(number(5), number(6)), x[number(1)] * number(2)):
        assert tw.Workload.of(made).inputs[0].shape == (6, 5)


@pytest.mark.parametrize(
    ("error", "words", "wrong"),
    [
        (TypeError, "budget must be", {"budget": 8}),
        (TypeError, "whole trials", {"budget": tw.Budget(trials=1.5)}),  # type: ignore[arg-type]
        (ValueError, "at least one trial", {"budget": tw.Budget(trials=-1)}),
        (ValueError, "more than 0 seconds", {"budget": tw.Budget(seconds=0)}),
        (TypeError, "seed must be", {"seed": "a"}),
        (ValueError, "seed must be", {"seed": -1}),
        (ValueError, "seed must be", {"seed": 2**63}),
    ],
)
def test_budgets_and_seeds_are_checked_before_anything_runs(
    error: type[Exception], words: str, wrong: dict[str, Any]
) -> None:
    calls: list[tuple[Any, Any]] = [(tw.tune, MATMUL), (tw.tune_many, [MATMUL])]
    for call, given in calls:
        with pytest.raises(error, match=words):
            call(given, database=":memory:", **wrong)
