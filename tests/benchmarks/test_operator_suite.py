"""The operator suite: cases build, families cover them, reports say what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.report import document
from benchmarks.run import _options, main, sampled
from benchmarks.suite.cases import Case
from benchmarks.suite.contestant import KernelSide, PrepackedSide, make_inputs, reference
from benchmarks.suite.context import Context, Row, RowError, Settings
from benchmarks.suite.crew import Contestant, Crew, RaceError
from benchmarks.suite.families import BIG_FLOPS, FAMILIES, families_of, family_of
from benchmarks.suite.family_goals import (
    ALL,
    Spread,
    family_figures,
    judge_suite,
    read_tvm,
)
from benchmarks.suite.family_report import (
    bound_text,
    constant_sections,
    suite_sections,
    under_table,
)
from benchmarks.suite.operator_suite import constant_cases, heavy_cases, suite_cases
from benchmarks.suite.race import (
    LEAST_UNSHARED,
    SETTLED_BLOCKS,
    _leave_out_hopeless,
    build_library,
    counting,
    settled,
    unshared,
)
from benchmarks.suite.registry import every_case, workload_of
from benchmarks.suite.results import Result, ResultsFile
from benchmarks.suite.rows_suite import (
    against_bound,
    constant_rows,
    of_bound_beside,
    prepack_figures,
    suite_rows,
)
from benchmarks.suite.rows_tails import (
    LEAST,
    MOST,
    NEIGHBOURHOODS,
    REACH,
    neighbourhood,
    worst_pair,
)
from benchmarks.suite.shelf import Shelf
from benchmarks.suite.tune_case import emit
from benchmarks.suite.tvm_side import tvm_best, tvm_request
from benchmarks.windows import Windows
from tests.support.benchmark_rows import results_of, row_data
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.search.default import default_trace

EVERYONE = [*suite_cases(), *heavy_cases()]


@pytest.mark.parametrize("case", EVERYONE, ids=lambda case: case.name)
def test_a_case_is_a_workload_of_one_output_in_a_family(case: Case) -> None:
    workload = workload_of(case)
    assert len(workload.outputs) == 1
    assert all(tensor.dtype == "f32" for tensor in workload.arguments)
    assert family_of(case).key in FAMILIES
    assert set(case.axes) <= set(case.sizes)


def test_heavy_cases_are_those_of_more_than_2e10_operations() -> None:
    assert {case.name for case in heavy_cases()} == {
        case.name for case in EVERYONE if workload_of(case).flops > 2e10
    }


def test_every_family_has_members() -> None:
    members = dict.fromkeys(FAMILIES, 0)
    for case in suite_cases():
        members[family_of(case).key] += 1
    assert min(members.values()) >= 3
    assert all(members[key] >= 6 for key in FAMILIES if FAMILIES[key].of_bound is not None)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("mm_512x512x512", "gemm"), ("mm_2048x2048x2048", "gemm"), ("GMM_2_b1", "gemm"),
        ("mm_256x256x256", "gemm_layouts"), ("mmnt_512", "gemm_layouts"),
        ("bertB_qk", "gemm_layouts"), ("attention_values", "gemm_layouts"),
        ("mm_1000x1000x1000", "gemm_odd"), ("mm_127x131x137", "gemm_odd"),
        ("mm_64x64x64", "gemm_small"), ("mm_160x160x160", "gemm_small"),
        ("mm_32x32x16384", "gemm_shapes"), ("mm_8192x64x64", "gemm_shapes"),
        ("mm_64x8192x64", "gemm_shapes"), ("mm_8x4096x4096", "gemv"), ("R50_fc_b1", "gemv"),
        ("DIL_2_b1", "conv"), ("C1D_2_b1", "conv"), ("C3D_3_b1", "conv"),
        ("C2D_0_b1", "conv_other"), ("C1D_1_b1", "conv_other"), ("GRP_3_b16", "conv_other"),
        ("CAP_1_b1", "conv_other"), ("MB2_dw1", "depthwise"), ("R50_pool_b1", "depthwise"),
        ("T2D_1_b1", "conv_transpose"), ("T2D_0_b1", "conv_transpose_rest"),
        ("T2D_3_b16", "conv_transpose_rest"), ("colsum_1024x4096", "rows"),
        ("transpose_1024x1024", "elementwise"), ("CBR_1_b1", "fused"), ("TBG_0_b1", "fused"),
        ("bertB_ffn1", "fused"), ("R50_01_b1", "fused"), ("bertB_qkv", "gemm_shapes"),
    ],
)  # fmt: skip
def test_the_family_follows_from_operation_and_sizes(name: str, family: str) -> None:
    assert family_of(every_case()[name]).key == family


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("R50_03_b1", ["fused", "conv"]), ("CBR_1_b1", ["fused", "conv"]),
        ("R50_00_b1", ["fused"]), ("bertB_ffn1", ["fused"]), ("C2D_2_b1", ["conv"]),
        ("MB2_dw1", ["depthwise"]),
    ],
)  # fmt: skip
def test_a_dense_convolution_counts_as_one_with_an_epilogue_too(
    name: str, families: list[str]
) -> None:
    assert [family.key for family in families_of(every_case()[name])] == families


def test_a_row_counts_in_each_of_its_families(tmp_path: Path) -> None:
    both = {**row_data("a", "fused", 1, 1.2, 0.9), "families": ["fused", "conv"]}
    found = family_figures(results_of(tmp_path, both, row_data("b", "conv", 1, 1.1, 0.9)))
    counts = {each.family.key: len(each.rows) for each in found if each.which == "1"}
    assert counts == {"conv": 2, "fused": 1}


def test_a_case_within_its_spread_is_not_below(tmp_path: Path) -> None:
    wide = row_data("a", "rows", 1, 0.95, 0.9)
    wide["against_best_peer"] |= {"low": 0.9, "high": 1.01}
    sure = row_data("b", "rows", 1, 0.95, 0.9)
    results = results_of(tmp_path, wide, sure)
    (one,) = (each for each in family_figures(results) if each.which == "1")
    assert [row.data["case"] for row in one.below] == ["b"]
    table = under_table(results.matching("suite/"))
    assert "| a | 1 | 0.950x | 0.900 to 1.010 | no | numpy: - |" in table
    assert "| b | 1 | 0.950x | 0.950 to 0.950 | **yes** | numpy: - |" in table


def test_dense_convolutions_are_large() -> None:
    for case in EVERYONE:
        if family_of(case).key == "conv":
            assert workload_of(case).flops >= BIG_FLOPS
            assert case.sizes["CI"] >= 16


def test_windows_take_one_value_or_one_an_axis() -> None:
    sizes = {"KH": 1, "KW": 7, "pad_h": 0, "pad_w": 3, "stride": 2}
    windows = Windows.of(sizes, 2)
    assert windows == Windows((1, 7), (2, 2), (0, 3), (1, 1))
    assert windows.spans == (1, 7)
    assert not windows.pointwise
    assert Windows.of({"K": 1}, 3).pointwise
    assert not Windows.of({"K": 1, "stride": 2}, 2).pointwise
    assert windows.and_a_point().taps == (1, 7, 1)


def test_figures_of_a_family_are_told_for_each_thread_count_and_together(tmp_path: Path) -> None:
    results = results_of(
        tmp_path,
        row_data("a", "conv", 1, 2.0, 0.9),
        row_data("b", "conv", 1, 0.96, 0.9),
        row_data("a", "conv", 2, 1.2, 0.8),
    )
    by_count = {each.which: each for each in family_figures(results)}
    one = by_count["1"].speedup
    assert one is not None
    assert one.geomean == pytest.approx((2.0 * 0.96) ** 0.5)
    assert one == Spread(2, one.geomean, 0.96, "b 1t")
    assert by_count["1"].speedup_met is False  # the geomean is reached, the worst case is not
    assert by_count["2"].speedup_met is True
    assert by_count["2"].bound_met is False
    together = by_count[ALL].speedup
    assert together is not None
    assert together.count == 3


def test_the_report_has_families_cases_and_why_a_side_is_missing(tmp_path: Path) -> None:
    results = results_of(tmp_path, row_data("a", "depthwise", 1, 2.0, 0.9))
    judgements = judge_suite(results, {})
    assert [each.met for each in judgements] == [True, True]
    text = document(results, judgements, suite_sections(results, {}))
    assert (
        "| depthwise and pooling windows | 1 | 1 | 2.00x | 2.00x a 1t | 1.05x, each 0.97x | yes |"
        in text
    )
    assert "25 times slower than the other peer" in text
    assert "0.90 (0.45)" in text


def test_a_family_says_how_many_rows_have_one_library_only(tmp_path: Path) -> None:
    behind = row_data("a", "depthwise", 1, 2.0, 0.9)  # PyTorch was timed: 25 times slower
    alone = row_data("b", "depthwise", 1, 2.0, 0.9)
    alone["race"]["torch"] = {"missing": "PyTorch is not installed"}
    judged = judge_suite(results_of(tmp_path, behind, alone), {})
    assert judged[0].measured == "geomean 2.00x of 2, worst 2.00x (a 1t); 1 against one library"


def test_trial_counts_of_tvm_do_not_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = list[str]()

    def tuned(command: list[str], *_: object) -> tuple[dict[str, Any], float]:
        folders.append(command[-1])
        return {"library": f"{command[-1]}/tvm.so"}, 0.0

    monkeypatch.setattr("benchmarks.suite.tvm_side.run_json", tuned)
    case = every_case()["mm_64x64x64"]
    with Crew(tmp_path) as crew:
        for trials in (16, 128, 16):
            settings = Settings(tvm_python="python", tvm_trials=trials)
            tvm_best(Context(tmp_path, {"cores": 2}, False, crew, settings), case, 1)
    assert [Path(folder).name for folder in folders] == ["16", "128"]


def test_nothing_is_said_of_a_suite_that_was_not_measured(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "results.jsonl")
    assert judge_suite(results, {}) == []
    assert suite_sections(results, {}) == []


def test_figures_of_tvm_come_from_a_file_or_a_race(tmp_path: Path) -> None:
    file = tmp_path / "tvm.jsonl"
    lines = [
        {"name": "a", "threads": 2, "tvm_128_trials_median_us": 30.0, "torch_us": 40.0},
        {"name": "b", "threads": 2, "torch_us": 40.0},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    raced = row_data("b", "gemm_odd", 2, 2.0, 0.9)
    raced["race"]["tvm"] = {"ratio": {"median": 0.9, "low": 0.9, "high": 0.9}}
    raced["tvm"] = {"trials": 16}
    results = results_of(tmp_path, row_data("a", "conv", 2, 2.0, 0.9), raced)
    tvm = read_tvm(file)
    assert list(tvm) == ["a 2t"]
    told = {(j.what, j.to_reach): j for j in judge_suite(results, tvm) if "TVM" in j.what}
    elsewhere = "suite: TVM's best of 128 trials, measured elsewhere at another time"
    assert told[elsewhere, ">= 1.15x"].met is True
    assert "geomean 1.20x of 1" in told[elsewhere, ">= 1.15x"].measured
    here = "suite: TVM's best of 16 trials, raced here"
    assert told[here, "no case of 10 us or more under 0.97x"].met is False
    assert told[f"{here}, odd sizes", ">= 1.80x"].met is False
    assert "| a 2t | 20 us | 1.20x | - | - |" in "\n".join(suite_sections(results, tvm))
    assert read_tvm(tmp_path / "nothing.jsonl") == {}


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        "7",
        '{"tvm_128_trials_median_us": 1}',
        '{"name": "a", "threads": 1, "tvm_128_trials_median_us": null}',
    ],
)
def test_what_is_no_file_of_tvms_medians_is_refused_before_it_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = tmp_path / "tvm.jsonl"
    file.write_text(f"\n{text}\n")
    with pytest.raises(ValueError, match=r"tvm.jsonl, line 2: .* is expected, got "):
        read_tvm(file)
    with pytest.raises(SystemExit):
        main(["--report-only", "--tvm", str(file), "--folder", str(tmp_path / "results")])
    assert "tvm.jsonl, line 2: " in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_packing_ahead_is_told_with_both_figures_beside_the_families(tmp_path: Path) -> None:
    data = row_data("a constant W", "conv", 1, 2.0, 0.9)
    data["prepack"] = {"raced": {"run_secs": 1e-5, "run_secs_with_packing": 2e-5}}
    results = ResultsFile(tmp_path / "results.jsonl")
    results.add(Result("constants/conv/a constant W/1t", "now", "session", 0.0, data))
    text = "\n".join(constant_sections(results))
    assert "| a constant W | 1 | 10 us | 20 us | 0.90 (0.45) compute | 2.00x |" in text
    assert "| 2.00x | 1.00x |" in text
    assert family_figures(results) == []
    assert judge_suite(results, {}) == []


def test_a_row_with_constants_has_both_figures_or_fails() -> None:
    best = {"packed_ahead": True, "run_secs": 1e-5, "run_secs_with_packing": 3e-5}
    race = {"kernel": {"run_secs": 1.1e-5}, "packing": {"run_secs": 2.9e-5}}
    assert prepack_figures({"best": best}, race) == {
        "raced": {"run_secs": 1.1e-5, "run_secs_with_packing": 2.9e-5},
        "tuned": {"run_secs": 1e-5, "run_secs_with_packing": 3e-5},
    }
    assert prepack_figures({"best": {"packed_ahead": False}}, race) is None
    with pytest.raises(RowError, match="no time with packing: wrong result"):
        prepack_figures({"best": best}, {**race, "packing": {"missing": "wrong result"}})


@pytest.mark.parametrize("case", constant_cases(), ids=lambda case: case.name)
def test_weights_of_some_cases_are_marked_constant(case: Case) -> None:
    workload = workload_of(case)
    (weight,) = [tensor.name for tensor in workload.inputs if tensor.constant]
    assert case.name.endswith(f" constant {weight}")
    assert every_case()[case.name] == case


@pytest.mark.parametrize("name", ["mm_64x64x64 constant B", "R50_fc_b1 constant W"])
def test_a_prepacked_side_computes_what_one_that_packs_does(name: str, tmp_path: Path) -> None:
    case = every_case()[name]
    workload, target = workload_of(case), native_target()
    file = tmp_path / "kernel.o"
    emit(workload, default_trace(workload, target), target, file)
    inputs = make_inputs(workload.inputs, 1, Shelf())
    count = len(workload.arguments)
    results = []
    for prepacked in (False, True):
        shelf = Shelf()
        output = shelf.array(workload.output_tensors[0].shape)
        if prepacked:
            constants = [n for n, each in enumerate(workload.inputs) if each.constant]
            library = build_library(file, count - len(constants) + 1, "kernel_prepacked")
            side: KernelSide = PrepackedSide(library, inputs, output, shelf, constants)
        else:
            side = KernelSide(build_library(file, count), inputs, output, shelf)
        assert min(side.time(2, 1)) > 0
        results.append(side.result())
    assert np.array_equal(results[0], results[1])
    assert np.abs(results[0] - reference(case, 1)).max() < 1e-3


def test_a_kernel_that_beats_its_bound_is_the_bound() -> None:
    bound = {"secs": 3.3, "binds": "L2", "peak_gflops": 100.0}
    result = {"kernel": {"run_secs": 1.0}, "peak": {}}
    found = against_bound(bound, result, 1)
    assert (found["of_bound"], found["of_bound_beside"]) == (1.0, 1.0)
    assert bound_text(found["bound"]) == "L2, beaten 3.30x"
    near = against_bound({**bound, "secs": 1.01}, result, 1)
    assert near["of_bound"] == 1.0
    assert bound_text(near["bound"]) == "L2"


def test_the_bound_is_taken_at_the_peak_beside_the_kernel() -> None:
    result = {"kernel": {"run_secs": 2.0}, "peak": {"ratio": {"median": 0.01}}}
    # Probed at 100 GFLOP/s, "peak" took 0.01 s; in the race it takes 0.02 s: half the clock.
    bound = {"secs": 0.9, "binds": "compute", "peak_gflops": 100.0}
    assert of_bound_beside(bound, result, 1) == pytest.approx(0.9)
    assert of_bound_beside({**bound, "binds": "L2"}, result, 1) == pytest.approx(0.45)


def test_a_hopeless_peer_is_left_out_and_said_so() -> None:
    found: dict[str, dict[str, Any]] = {
        "kernel": {"call_secs": 1e-5}, "numpy": {"call_secs": 0.5}, "torch": {"call_secs": 0.01},
    }  # fmt: skip
    _leave_out_hopeless(found)
    assert found["numpy"] == {"missing": "50 times slower than the other peer"}
    assert "missing" not in found["torch"]
    close: dict[str, dict[str, Any]] = {"numpy": {"call_secs": 0.15}, "torch": {"call_secs": 0.01}}
    _leave_out_hopeless(close)
    assert "missing" not in close["numpy"]


def test_contestants_are_kept_and_replaced_after_an_end(tmp_path: Path) -> None:
    with Crew(tmp_path) as crew:
        first = crew.member("numpy", 1)
        assert crew.member("numpy", 1) is first
        first.ask({"op": "open", "side": "numpy", "case": "no such case", "threads": 1, "seed": 1})
        with pytest.raises(RaceError, match="a process ended: KeyError"):
            first.answer()
        crew.dismiss("numpy", 1)
        second = crew.member("numpy", 1)
        assert second is not first
        second.ask({"op": "open", "side": "numpy", "case": "mm_64x64x64", "threads": 1, "seed": 1})
        answer = second.answer()
        assert answer["difference"] < 1e-5
        second.pace(answer["call_secs"])
        assert min(second.block()) > 0
        crew.release("numpy", 1)


def test_neighbourhoods_are_near_and_in_range() -> None:
    for number in range(NEIGHBOURHOODS):
        sizes = np.array(neighbourhood(number))
        assert sizes.min() >= LEAST
        assert sizes.max() <= MOST
        assert np.ptp(sizes, axis=0).max() < REACH + 1
        assert len({tuple(size) for size in sizes}) == len(sizes)
        assert neighbourhood(number) == neighbourhood(number)


def test_the_worst_pair_of_a_neighbourhood() -> None:
    products = [{"size": [33, 33, 33], "gflops": 50.0}, {"size": [48, 48, 48], "gflops": 200.0}]
    assert worst_pair(products)["ratio"] == 4.0


def test_a_contestant_paces_itself_by_the_length_of_a_call(tmp_path: Path) -> None:
    contestant = Contestant(2, tmp_path / "log")
    try:
        contestant.pace(2**-16)
        assert (contestant._calls, contestant._rounds) == (66, 29)
        contestant.pace(0.005)
        assert (contestant._calls, contestant._rounds) == (1, 8)
        contestant.pace(0.1)
        assert (contestant._calls, contestant._rounds) == (1, 2)
    finally:
        contestant.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--families", "gemm,nothing"], "'nothing' is none of gemm, gemm_layouts"),
        (["--tvm", "nowhere.jsonl"], "'nowhere.jsonl' is no file"),
        (["--tvm-python", "no-such-python"], "'no-such-python' is no program"),
    ],
)
def test_options_that_cannot_be_are_refused_at_once(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err


def test_options_are_few_by_default() -> None:
    options = _options([])
    assert options.trials == 24
    assert options.tvm_python is None
    assert not options.heavy


def test_what_tvm_found_is_kept(tmp_path: Path) -> None:
    case = every_case()["mm_64x64x64"]
    with Crew(tmp_path) as crew:
        context = Context(tmp_path, {"cores": 2}, False, crew, Settings(tvm_python="/bin/false"))
        first = tvm_best(context, case, 1)
        assert "exit code 1" in first["missing"]
        kept = tmp_path / "tvm" / "mm_64x64x64_1t" / "128.json"
        kept.write_text(json.dumps({"library": "tvm.so", "trials": 128}))
        found = tvm_best(context, case, 1)
    assert tvm_request(found, "python") == {"python": "python", "tvm_library": "tvm.so"}
    assert tvm_request(first, "python") == {"missing": first["missing"]}


def test_rows_of_the_suite_follow_the_settings(tmp_path: Path) -> None:
    with Crew(tmp_path) as crew:
        everything = suite_rows(Context(tmp_path, {"cores": 2}, False, crew))
        assert len(everything) == 2 * len(suite_cases())
        chosen = Settings(families=("gemm_small",), heavy=True)
        few = suite_rows(Context(tmp_path, {"cores": 1}, False, crew, chosen))
        constants = constant_rows(Context(tmp_path, {"cores": 2}, False, crew))
        quick = suite_rows(Context(tmp_path, {"cores": 1}, True, crew))
    assert {row.key.split("/")[0] for row in constants} == {"constants"}
    assert len({row.key for row in constants}) == len(constants) == 2 * len(constant_cases())
    assert {row.key.split("/")[1] for row in few} == {"gemm_small"}
    assert all(row.key.endswith("/1t") for row in few)
    assert len({row.key for row in everything}) == len(everything)
    assert sorted(row.key.split("/")[1] for row in quick) == sorted(FAMILIES)


def rounds_of(peaks: list[list[float]]) -> list[dict[str, list[float]]]:
    return [{"kernel": [1.0 + i], "peak": peak} for i, peak in enumerate(peaks)]


def test_a_race_whose_ratios_are_known_may_end_early() -> None:
    def race_of(spread: float) -> list[dict[str, list[float]]]:
        return [
            {"kernel": [1.0], "numpy": [2.0 + spread * (i % 2)], "peak": [4.0]} for i in range(8)
        ]

    assert settled(race_of(0.001))
    assert not settled(race_of(0.1))
    assert not settled(race_of(0.0)[: SETTLED_BLOCKS - 1])


def test_rounds_on_shared_cores_count_for_no_side() -> None:
    """Those in which the peak's usual sample took much longer than its fastest one."""
    alone, shared = [4.0, 4.1, 4.3], [4.1, 8.2, 8.2]
    rounds = rounds_of([alone, shared, alone, shared, alone])
    assert unshared(rounds) == counting(rounds) == [rounds[0], rounds[2], rounds[4]]
    busy = rounds_of([alone, *[shared] * 6])
    assert len(unshared(busy)) < LEAST_UNSHARED
    assert counting(busy) == busy
    without = [{"kernel": [1.0]}, {"kernel": [9.0]}]
    assert counting(without) == without


def test_a_sample_has_the_first_case_of_each_family_and_whole_cases() -> None:
    names = [f"suite/gemm/{c}/{t}t" for c in "abcde" for t in (1, 2)]
    names += ["suite/conv/a/1t", "suite/conv/b/1t", "constants/gemm/b/1t", "emit/matmul"]
    rows = [Row(name, lambda context: {}, str, 1.0) for name in names]
    assert [row.key for row in sampled(rows, 1)] == names
    assert [row.key for row in sampled(rows, 2)] == [
        "suite/gemm/a/1t", "suite/gemm/a/2t", "suite/gemm/c/1t", "suite/gemm/c/2t",
        "suite/gemm/e/1t", "suite/gemm/e/2t", "suite/conv/a/1t", "constants/gemm/b/1t",
        "emit/matmul",
    ]  # fmt: skip
