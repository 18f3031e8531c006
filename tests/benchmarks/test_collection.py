"""The collection: rows build, layers are the library's, and a failing row does not end a run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from benchmarks.collection import __main__ as command
from benchmarks.collection import measuring, serving
from benchmarks.collection.layers import avg_pool, conv, conv_transpose, max_pool
from benchmarks.collection.measuring import Processes, Settings, measured
from benchmarks.collection.row import Input, Row, Values
from benchmarks.collection.serving import Session, difference, inputs_of
from benchmarks.collection.summary import summary
from benchmarks.collection.table import PROGRAMS, SINGLE, rows, workload_of
from tilewright import operators
from tilewright.tuner.machine.native_target import detect

SUM = Row(
    "small_sum",
    (Input("x", (3, 5)), Input("w", (5,), role="weight")),
    lambda _, x, w: (x + w).sum(1, keepdim=True),
    lambda x, w: (x + w).sum(1),
)


def _shape(extents: Any) -> list[int]:
    return [int(e) for e in extents if e > 1]


def test_the_collection_has_a_hundred_single_operators() -> None:
    assert len(SINGLE) >= 100
    assert {row.name for row in SINGLE} <= set(rows())


@pytest.mark.parametrize("row", rows().values(), ids=lambda row: row.name)
def test_every_row_builds_a_workload_of_its_inputs(row: Row) -> None:
    workload = workload_of(row)
    read = json.dumps(workload.to_json()["stages"])
    assert all(f'"tensor": "{t.name}"' in read for t in workload.inputs)
    assert workload.flops > 0
    assert workload.min_bytes < 400e6


@pytest.mark.parametrize("row", rows().values(), ids=lambda row: row.name)
def test_both_sides_of_a_row_have_one_shape(row: Row) -> None:
    torch = pytest.importorskip("torch")
    types = {"f32": torch.float32, "i32": torch.int32, "u8": torch.bool}
    # The shape of a count may depend on its data, which meta tensors do not have.
    device = "meta" if any(i.dtype == "f32" for i in row.inputs) else "cpu"
    inputs = [torch.zeros(i.shape, dtype=types[i.dtype], device=device) for i in row.inputs]
    theirs = row.torch(torch.nn.functional, *inputs).shape
    (ours,) = workload_of(row).output_tensors
    assert _shape(theirs) == _shape(ours.shape)


def test_a_row_whose_workload_has_other_inputs_is_refused() -> None:
    other = replace(SUM, ours=lambda x, w: operators.matmul(M=3, N=1, K=5))
    with pytest.raises(tw.WorkloadError, match="has the inputs"):
        workload_of(other)


def test_layers_are_the_operators_of_the_library() -> None:
    x = tw.placeholder("X", (2, 8, 14, 15))
    w, g = tw.placeholder("W", (12, 4, 3, 2)), tw.placeholder("W", (8, 6, 3, 2))
    image = {"N": 2, "H": 14, "W": 15}
    made = tw.Workload.of(conv(x, w, (2, 1), (1, 0), (2, 3), 2), inputs=[x, w])
    assert made.key == operators.conv2d_nchw(
        **image, CI=8, CO=12, KH=3, KW=2, stride_h=2, pad_h=1, dilation_h=2, dilation_w=3, groups=2
    ).key  # fmt: skip
    pooled = max_pool(x, (3, 2), (2, 1), (1, 0), 2)
    assert tw.Workload.of(pooled).key == operators.max_pool2d_nchw(
        **image, C=8, KH=3, KW=2, stride_h=2, pad_h=1, dilation=2
    ).key  # fmt: skip
    assert tw.Workload.of(avg_pool(x, 3, 2, 1)).key == operators.avg_pool2d_nchw(
        **image, C=8, K=3, stride=2, pad=1
    ).key  # fmt: skip
    for stride in (1, 2, 3):
        for pad in (0, 1, 3):
            for dilation in (1, 2):
                for groups in (1, 2):
                    out_pad = stride - 1
                    y = conv_transpose(x, g, stride, pad, out_pad, dilation, groups)
                    assert tw.Workload.of(y, inputs=[x, g]).key == operators.conv2d_transpose_nchw(
                        **image, CI=8, CO=6 * groups, KH=3, KW=2, stride=stride, pad=pad,
                        dilation=dilation, groups=groups, out_pad=out_pad,
                    ).key  # fmt: skip


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ("uniform", lambda a: (a >= 2).all() and (a < 7).all()),
        ("positive", lambda a: (a > 0).all()),
        ("sign", lambda a: set(a.flat) == {-1.0, 1.0}),
        ("class", lambda a: set(a.flat) == set(range(7))),
        ("mask", lambda a: set(a.flat) == {0, 1}),
        ("distribution", lambda a: (a > 0).all() and np.allclose(a.sum(-1), 1)),
        ("symmetric", lambda a: (a == a.T).all()),
        ("upper", lambda a: (np.triu(a) == a).all() and a.any()),
        ("lower", lambda a: (np.tril(a) == a).all() and a.any()),
    ],
)
def test_inputs_have_the_values_that_they_name(values: Values, right: Any) -> None:
    drawn = Input("x", (20, 20), values=values, low=2, high=7).drawn(np.random.default_rng(0))
    assert right(drawn)


def test_weights_keep_the_scale_of_sums() -> None:
    rng = np.random.default_rng(0)
    w = Input("w", (40, 16, 3, 3), role="weight").drawn(rng)
    assert 0.9 < w.std() * np.sqrt(16 * 3 * 3) < 1.1
    assert 0.9 < Input("x", (40, 16, 3, 3)).drawn(rng).std() < 1.1


def test_inputs_are_the_same_in_every_process() -> None:
    one, other = inputs_of(SUM, 3), inputs_of(SUM, 3)
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert (one[0] != inputs_of(SUM, 4)[0]).any()


def test_a_difference_is_relative_to_the_largest_element() -> None:
    expected = np.array([[0.0, 4.0]])
    assert difference(np.array([0.0, 4.0]), expected) == 0.0
    assert difference(np.array([1.0, 4.0]), expected) == 0.25
    assert difference(np.array([[0.0], [np.nan]]), expected) == float("inf")
    assert difference(np.array([0.0, 4.0, 0.0]), expected) == float("inf")


def test_a_kernel_is_compared_with_the_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(serving, "rows", lambda: {SUM.name: SUM})
    x, w = (a.astype(np.float64) for a in inputs_of(SUM, 1))
    file = str(tmp_path / "reference.npy")
    asked = {"op": "kernel", "row": SUM.name, "seed": 1, "threads": 1, "reference": file}
    session = Session()
    for expected, wrong in (((x + w).sum(1), False), ((x - w).sum(1), True)):
        np.save(file, expected)
        answer = session.answer({**asked, "trace": None, "target": detect().to_json()})
        assert (answer["max_error"] > serving.TOLERANCE) == wrong
    samples = session.answer({"op": "time", "way": "ours", "calls": 2, "rounds": 3})["samples"]
    assert len(samples) == 3


def _served_by(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the processes that serve rows by a Python program."""
    monkeypatch.setattr(measuring, "COMMAND", [sys.executable, "-c", program])


ENDS = "import sys; sys.stdin.readline(); sys.exit('MemoryError: too much')"
HANGS = "import time; time.sleep(100)"
REFUSES = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"cannot_be_expressed": "bad_node: no"}), flush=True)
"""


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        (ENDS, "failed", "MemoryError: too much"),
        (HANGS, "failed", "no answer for 1 s"),
        (REFUSES, "cannot_be_expressed", "bad_node: no"),
    ],
)
def test_a_row_that_fails_is_recorded_and_the_next_one_is_measured(
    program: str, kind: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _served_by(program, monkeypatch)
    settings = Settings(threads=1, deadline_secs=1.0, folder=tmp_path)
    with Processes(settings) as processes:
        for name in ("relu", "gelu"):
            result = measured(name, processes, settings)
            assert words in result[kind]
            assert result["name"] == name


SERVES = """
import json, sys
secs = {"ours": 0.5, "eager": 2.0, "compiled": 1.0}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "compile" and %s:
        sys.exit("Killed")
    error = %s if asked["op"] == "kernel" else 1e-3
    answer = {"call_secs": 1.0, "max_error": error, "way": asked["op"]}
    if asked["op"] == "tune":
        answer = {"trace": [], "target": {}, "tune_secs": 3.0}
    elif asked["op"] == "time":
        answer = {"samples": [secs[asked["way"]]] * asked["rounds"]}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def one_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A function that measures a row with processes that answer as a program says."""
    monkeypatch.setenv("TILEWRIGHT_MEASURE_LOCK", str(tmp_path / "lock"))

    def result(program: str) -> dict[str, Any]:
        _served_by(program, monkeypatch)
        settings = Settings(threads=1, deadline_secs=20.0, race_secs=0.01, folder=tmp_path)
        with Processes(settings) as processes:
            return measured("relu", processes, settings)

    return result


def test_a_row_is_raced_with_the_fastest_eager_and_compiled_calls(one_result: Any) -> None:
    result = one_result(SERVES % (False, 1e-6))
    assert (result["over_eager"], result["over_compiled"], result["ratio"]) == (4.0, 2.0, 2.0)
    assert (result["best_way"], result["tune_secs"], result["max_error"]) == ("compile", 3.0, 1e-6)
    assert "trace" not in result


def test_a_compiler_that_fails_leaves_the_eager_call(one_result: Any) -> None:
    result = one_result(SERVES % (True, 1e-6))
    assert (result["ratio"], result["best_way"]) == (4.0, "torch")
    assert result["pytorch"]["compiled"] == {"failed": "a process ended: Killed"}


def test_a_kernel_with_a_wrong_result_is_not_raced(one_result: Any) -> None:
    result = one_result(SERVES % (False, 2e-3))
    assert result["wrong"] == "off by 0.002 of the largest element"
    assert "ratio" not in result


def test_a_kernel_may_be_as_inexact_as_pytorch(one_result: Any) -> None:
    assert one_result(SERVES % (False, 9e-4))["ratio"] == 2.0


def test_a_run_continues_after_the_rows_of_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _served_by(REFUSES, monkeypatch)
    out, folder = tmp_path / "out.jsonl", str(tmp_path / "folder")
    for pattern in ("relu,elu", "?elu,elu,selu"):
        arguments = ["--out", str(out), "--only", pattern, "--threads", "1", "--folder", folder]
        assert command.main([*arguments, "--report", str(out)]) == 0
    names = [json.loads(line)["name"] for line in out.read_text().splitlines()]
    assert names == ["relu", "elu", "gelu", "selu"]
    assert "| selu | cannot_be_expressed: bad_node: no |" in capsys.readouterr().out


def test_rows_are_chosen_by_patterns_and_kinds() -> None:
    assert command.chosen("matmul_*_triangular") == [
        "matmul_upper_triangular",
        "matmul_lower_triangular",
    ]
    assert command.chosen("single") == [row.name for row in SINGLE]
    assert command.chosen("programs") == [row.name for row in PROGRAMS]
    assert set(command.chosen("single,chains,programs")) == set(rows())


def _result(name: str, ratio: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "threads": 2, "tune_secs": 4.0, "ours_secs": 1e-3, "eager_secs": ratio * 1e-3,
        "compiled_secs": 2e-3 * ratio, "over_eager": ratio, "over_compiled": 2 * ratio,
        "ratio": ratio, "ratio_interval": [ratio, ratio], "best_way": "eager", **more,
    }  # fmt: skip


def test_the_report_has_means_and_the_rows_in_order() -> None:
    failed = {"name": "c", "threads": 2, "failed": "no answer for 120 s"}
    text = summary([_result("a", 4.0), _result("b", 1.0), _result("b", 0.25), failed])
    assert "3 rows on 2 threads" in text
    assert "right and raced: 2" in text
    assert "over PyTorch eager: geometric mean 1.00x of 2 rows" in text
    assert "over torch.compile: geometric mean 2.00x of 2 rows" in text
    assert "below 0.95x of the best way: 1" in text
    assert "tuning: median 4.0 s" in text
    assert text.index("| b | 0.25") < text.index("| a | 4.00") < text.index("| c | failed: no")
