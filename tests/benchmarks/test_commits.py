"""The benchmark of two commits: its rows, what it says of raw results, and what it goes by."""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.commits import latency
from benchmarks.commits.comparison import Comparison, Plan
from benchmarks.commits.racing import alternate
from benchmarks.commits.rows import OWN_FAMILY, Row, rows, spread_out
from benchmarks.commits.stage import (
    COPIES,
    LEAST_SAMPLES,
    MOST_SAMPLES,
    Stage,
    StageError,
    difference,
    loaded,
    samples_of,
)
from benchmarks.commits.summary import (
    ONE,
    Ratio,
    RowAt,
    final_bests,
    geomean_interval,
    joined,
    ratio,
    share_of_best,
    share_of_better,
    summary,
    too_slow,
)
from benchmarks.commits.trees import Side, TreeError, commit_key, one_machine, unpacked
from benchmarks.spaces.workloads import stored
from benchmarks.suite.families import FAMILIES
from benchmarks.suite.race import REFERENCE, SETTLED_BLOCKS, build_library, counting
from benchmarks.suite.results import Result, ResultsFile
from tilewright.schedules import DType, parse_workload
from tilewright.tuner import compile
from tilewright.tuner.machine.native_target import unprobed_target

COMMITS = {"old": "a" * 40, "new": "b" * 40}


def test_rows_are_enough_and_none_is_there_twice() -> None:
    names = Counter(row.name for row in rows())
    keys = Counter(row.workload.normalised().key for row in rows())
    assert set(names.values()) == {1}
    assert set(keys.values()) == {1}
    families = Counter(row.family for row in rows())
    assert families[OWN_FAMILY] >= 20
    assert len(rows()) - families[OWN_FAMILY] >= 60
    assert set(FAMILIES) <= set(families)
    assert {name for asked in latency.ROWS.values() for name in asked} <= set(names)


def test_expressions_of_our_own_are_in_no_list() -> None:
    known = {json.dumps({**document, "name": ""}, sort_keys=True) for _, document in stored()}
    for row in rows():
        document = row.workload.normalised().to_json()
        is_known = json.dumps({**document, "name": ""}, sort_keys=True) in known
        assert not (is_known and row.family == OWN_FAMILY), row.name


def test_a_sample_of_the_rows_is_spread_over_all() -> None:
    assert spread_out(rows(), None) == list(rows())
    some = spread_out(rows(), 10)
    assert len({row.name for row in some}) == 10
    assert len({row.family for row in some}) > 5


def test_equal_machine_code_is_one_and_needs_no_time() -> None:
    data = _data({"old best": "x", "new best": "x"}, [])
    assert ratio(data, "old best", "new best") is ONE


def test_the_ratio_of_a_row_is_the_median_of_its_rounds() -> None:
    rounds = [{"x": 2.0, "y": 1.0}, {"x": 3.0, "y": 1.0}, {"x": 8.0, "y": 2.0}]
    data = _data({"old best": "x", "new best": "y"}, rounds)
    assert ratio(data, "old best", "new best") == Ratio(3.0, 2.5, 3.5)


def test_seeds_of_a_row_make_one_ratio_whose_spread_holds_all() -> None:
    found = joined([Ratio(0.8, 0.79, 0.82), Ratio(1.25, 1.2, 1.3)])
    assert found.median == pytest.approx(1.0)
    assert (found.low, found.high) == (0.79, 1.3)
    assert joined([ONE, ONE]) == ONE
    assert not joined([ONE, found]).equal


def test_a_row_is_too_slow_only_beyond_its_spread() -> None:
    ratios = {
        RowAt("lucky", "rows", 1): Ratio(0.93, 0.90, 0.96),
        RowAt("slow", "rows", 1): Ratio(0.90, 0.89, 0.91),
        RowAt("slower", "rows", 2): Ratio(0.5, 0.4, 0.6),
        RowAt("fine", "rows", 2): Ratio(1.1, 1.0, 1.2),
    }
    assert [row.row for row in too_slow(ratios)] == ["slower", "slow"]


def test_the_interval_of_a_mean_holds_it_and_shrinks() -> None:
    few, many = [0.9, 1.0, 1.1], [0.9, 1.0, 1.1] * 30
    low, high = geomean_interval(few)
    assert low < 1.0 < high
    closer = geomean_interval(many)
    assert closer[1] - closer[0] < high - low


def test_a_proposal_is_held_against_its_own_best_and_the_better_one() -> None:
    named = {"old best": "a", "new best": "b", "old proposal": "a", "new proposal": "c"}
    data = _data(named, [{"a": 2.0, "b": 3.0, "c": 4.0}] * 3)
    assert share_of_best("old")(data) is ONE
    assert share_of_best("new")(data).median == 0.75
    assert share_of_better("new")(data).median == 0.5


def test_the_tables_come_from_raw_results_alone(tmp_path: Path) -> None:
    results = _results(tmp_path)
    text = summary(ResultsFile(tmp_path / "results.jsonl"))
    assert text == summary(results)
    assert "old aaaaaaaaaaaa, new bbbbbbbbbbbb; 16 trials a row" in text
    assert "rows below 0.95 beyond their spread: 1" in text
    assert "0.500 [0.500, 0.500]  slow, 2 threads" in text
    assert "1.000 [1.000, 1.000] equal  same, 1 thread" in text
    assert "Schedules proposed with no measurement" in text
    assert "first wall_ms, slow" in text
    assert "race/none/1t/0: nothing works" in text
    assert summary(ResultsFile(tmp_path / "none.jsonl")) == "Nothing was measured."


def test_every_row_has_the_seeds_it_was_tuned_with(tmp_path: Path) -> None:
    results = _results(tmp_path)
    named = {"old best": "a", "new best": "b"}
    about = {"row": "slow", "family": "rows", "threads": 2, "seed": 1}
    data = {**about, **_data(named, [{"a": 2.0, "b": 1.0}])}
    results.add(Result("race/slow/2t/1", "", "then", 0.0, data))
    found = final_bests(results)
    assert found[RowAt("slow", "rows", 2)] == Ratio(1.0, 0.5, 2.0)


def test_what_is_known_is_not_measured_again(tmp_path: Path) -> None:
    _results(tmp_path)
    asked = (_row("slow"), _row("none"), _row("new"))
    comparison = Comparison(_plan(asked), COMMITS, tmp_path / "results.jsonl")
    missing = [step.key for step in comparison.missing()]
    assert missing == [
        "slow, 1t, seed 0",  # on two threads it is known
        "none, 1t, seed 0",  # it failed
        "none, 2t, seed 0",
        "new, 1t, seed 0",
        "new, 2t, seed 0",
    ]


def test_results_of_other_commits_are_not_mixed_in(tmp_path: Path) -> None:
    _results(tmp_path)
    others = {**COMMITS, "new": "c" * 40}
    with pytest.raises(TreeError, match="other commits"):
        Comparison(_plan(()), others, tmp_path / "results.jsonl")


def test_both_commits_see_one_machine_each_in_its_own_words() -> None:
    own = {"cpu": "x", "probes": {"peak": [1.0], "gone": 3.0}, "old_word": 1}
    measured = {"cpu": "x", "probes": {"peak": [2.0], "fresh": 5.0}, "new_word": 2}
    expected = {"cpu": "x", "probes": {"peak": [2.0], "gone": 3.0}, "old_word": 1}
    assert one_machine(own, measured) == expected


def test_a_tree_holds_its_commit_and_nothing_later(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    file = repository / "tuner" / "module.py"
    file.parent.mkdir()
    keys = []
    _git(repository, "init", "-q")
    for text in ("first", "second"):
        file.write_text(f"{text} = 1")
        _git(repository, "add", ".")
        _git(repository, "commit", "-qm", text)
        keys.append(commit_key("HEAD", repository))
    file.write_text("not committed")
    trees = [unpacked(key, tmp_path / "trees", repository) for key in keys]
    read = [(tree / "tuner" / "module.py").read_text() for tree in trees]
    assert read == ["first = 1", "second = 1"]
    assert all(list(tree.glob("tuner/__pycache__/*.pyc")) for tree in trees), "as installed"
    assert unpacked(keys[0], tmp_path / "trees", repository) == trees[0]
    with pytest.raises(TreeError, match="no commit"):
        commit_key("nothing", repository)


def test_a_side_runs_its_own_tree_with_caches_of_its_own(tmp_path: Path) -> None:
    side = Side("old", "a" * 40, tmp_path / "tree", tmp_path / "old")
    environment = side.environment()
    assert environment["PYTHONPATH"] == str(tmp_path / "tree")
    assert environment["XDG_CACHE_HOME"].startswith(str(tmp_path / "old"))
    assert "OMP_NUM_THREADS" not in environment
    assert side.command("-m", "x")[1:] == ["-P", "-m", "x"]


@pytest.mark.parametrize(
    ("found", "expected", "dtype", "apart"),
    [
        ([1.0, 2.0], [1.0, 2.00001], DType.F32, False),
        ([1.0, 2.0], [1.0, 2.01], DType.F32, True),
        ([np.inf, 2.0], [np.inf, 2.0], DType.F32, False),
        ([np.nan, 2.0], [1.0, 2.0], DType.F32, True),
        ([0x3F80, 0x4000], [0x3F81, 0x4000], DType.BF16, False),
        ([0x3F80, 0x4000], [0x4000, 0x4000], DType.BF16, True),
        ([3, 255], [3, 254], DType.U8, False),
        ([3, 255], [3, 1], DType.U8, True),
    ],
)
def test_results_may_differ_by_rounding_and_no_more(
    found: list[float], expected: list[float], dtype: DType, apart: bool
) -> None:
    one, other = (np.array(values, dtype.numpy) for values in (found, expected))
    assert (difference(one, other, dtype) is not None) == apart


def test_long_kernels_are_sampled_less_often() -> None:
    assert samples_of({"a": 1e-6, "b": 2e-6}, 1) == MOST_SAMPLES
    assert samples_of({"a": 1e-6, "b": 0.5}, 1) == LEAST_SAMPLES[False]
    assert samples_of({"a": 1e-6, "b": 0.5}, 2) == LEAST_SAMPLES[True]


def test_a_race_ends_when_its_ratios_are_settled_or_enough_rounds_count() -> None:
    calm = {"x": [1.0], "y": [2.0], REFERENCE: [1.0]}
    assert len(alternate(lambda: calm, 50)) == SETTLED_BLOCKS
    values = itertools.count(1.0)
    assert len(alternate(lambda: {**calm, "y": [next(values)]}, 9)) == 9


def test_rounds_of_a_disturbed_core_are_repeated() -> None:
    calm = {"x": [1.0], "y": [2.0], REFERENCE: [1.0]}
    disturbed = {**calm, "y": [9.0], REFERENCE: [1.0, 1.6, 1.6]}
    rounds = itertools.chain([calm, disturbed], itertools.repeat(calm))
    taken = alternate(lambda: next(rounds), 50)
    assert len(taken) == SETTLED_BLOCKS + 1
    assert disturbed not in counting(taken)


def test_kernels_race_on_the_same_arrays_and_must_agree(tmp_path: Path) -> None:
    expr, tensors = "y[i] = a[i] * a[i] * 2.0", ["a=f32[64]"]
    doubled = parse_workload(expr=expr, tensors=tensors)
    tripled = parse_workload(expr=expr.replace("2", "3"), tensors=tensors)
    kernels = {name: _kernel(tmp_path, name, w) for name, w in (("x", doubled), ("z", tripled))}
    again = {**kernels["x"]}
    stage = Stage(doubled, {"x": kernels["x"], "y": again}, seed=1)
    stage.check()
    assert set(stage.pace()) == {"x", "y"}
    for _ in range(COPIES):
        found = stage.round(3)
        assert all(len(samples) == 3 and min(samples) > 0 for samples in found.values())
    with pytest.raises(StageError, match="apart"):
        Stage(doubled, kernels, seed=1).check()


def test_copies_of_a_kernel_lie_at_different_places(tmp_path: Path) -> None:
    kernel = _kernel(tmp_path, "x", parse_workload(expr="y[i] = a[i]", tensors=["a=f32[4]"]))
    copies = loaded(Path(kernel["library"]))
    places = {ctypes.cast(copy.kernel, ctypes.c_void_p).value for copy in copies}
    assert len(places) == COPIES


def _kernel(folder: Path, name: str, workload: Any) -> dict[str, Any]:
    compiled = compile(workload, None, unprobed_target()).compiled
    file = folder / f"{name}.o"
    file.write_bytes(compiled.object_bytes)
    library = build_library(file, len(workload.arguments), compiled.symbol)
    return {"library": str(library), "workspace_bytes": compiled.workspace_bytes}


def _data(objects: Mapping[str, str], rounds: list[dict[str, float]]) -> dict[str, Any]:
    return {"objects": dict(objects), "rounds": rounds, "left_out": 0}


def _results(folder: Path) -> ResultsFile:
    """A row that lost, one of equal code, one that failed, and a pair of processes."""
    results = ResultsFile(folder / "results.jsonl")
    machine = {"commits": COMMITS, "trials": 16, "model": "a processor", "cores": 2}
    session = results.begin(machine)
    slow = {"row": "slow", "family": "rows", "threads": 2, "seed": 0}
    same = {"row": "same", "family": "gemm", "threads": 1, "seed": 0}
    best = {"old best": "a", "new best": "b"}
    all_four = {**best, "old proposal": "a", "new proposal": "b"}
    rounds = [{"a": 1.0, "b": 2.0}] * 3
    equal = {"old best": "a", "new best": "a"}
    pair = {"kind": "first", "row": "slow", "old": {"wall_ms": 1.0}, "new": {"wall_ms": 1.0}}
    for key, data in (
        ("race/slow/2t/0", {**slow, **_data(best, rounds)}),
        ("proposals/slow/2t/0", {**slow, **_data(all_four, rounds)}),
        ("race/same/1t/0", {**same, **_data(equal, [])}),
        ("race/none/1t/0", {**same, "row": "none", "failed": "nothing works"}),
        ("latency/first/slow/0", pair),
    ):
        results.add(Result(key, "", session, 0.0, data))
    return results


def _row(name: str) -> Row:
    return Row(name, "rows", ("matmul:M=2,N=2,K=2",))


def _plan(asked: tuple[Row, ...]) -> Plan:
    return Plan(
        parts=("race",), rows=asked, threads=(1, 2), seeds=(0,), trials=16, rounds=10, pairs=1
    )


def _git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)
