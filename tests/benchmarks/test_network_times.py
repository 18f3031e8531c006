"""The networks whose tuning time is measured, and the figures of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilewright as tw
from benchmarks import network_times
from benchmarks.network_times import Curve, layers_of
from tests.support.service.records import HOST
from tilewright.service.resolve.entries import read_entries
from tilewright.tuner.many.entries import distinct_tasks

LAYERS = {  # distinct layers, calls, and 10**9 operations of a call of the network
    "resnet50": (25, 54, 8.2),
    "resnet18": (16, 21, 3.6),
    "mobilenet_v2": (32, 54, 0.62),
    "bert_base": (8, 133, 22.4),
    "bert_large": (8, 265, 247.3),
}


@pytest.mark.parametrize("network", LAYERS)
def test_a_network_has_its_layers_and_its_work(network: str) -> None:
    entries = read_entries(layers_of(network), tw.parse)
    distinct, calls, giga = LAYERS[network]
    assert len(distinct_tasks(entries)) == len(entries) == distinct
    assert sum(entry.weight for entry in entries) == calls
    work = sum(entry.weight * entry.workload.flops for entry in entries)
    assert work == pytest.approx(1e9 * giga, rel=0.01)
    assert all(entry.name for entry in entries)


def test_a_total_exists_when_every_layer_has_a_time() -> None:
    curve = Curve(2)
    curve.add(1.0, 0, 3.0)
    assert curve.first_secs is None
    curve.add(2.0, 1, 2.0)
    curve.add(3.0, 0, 1.5)
    curve.add(4.0, 0, 1.5)
    assert curve.totals == [(2.0, 5.0), (3.0, 3.5)]
    assert curve.first_secs == 5.0


def test_a_total_has_converged_when_it_stays_there() -> None:
    totals = [(1.0, 4.0), (2.0, 2.05), (3.0, 2.2), (4.0, 2.06), (5.0, 2.0)]
    curve = Curve(1, totals=totals)
    assert curve.within(2.0) == 4.0
    assert curve.within(4.0) == 1.0
    assert curve.within(1.0) is None


def test_a_small_network_is_measured_in_cold_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine, target = tmp_path / "machine.json", tmp_path / "target.json"
    machine.write_text('{"simulated": 1}')
    target.write_text(json.dumps(HOST.to_json()))
    small, relative = tmp_path / "small.json", tmp_path / "relative.json"
    for path, size in ((small, 16), (relative, 32)):
        names = [f"matmul:M={size},N=16,K=8", "softmax_mn:M=8,N=16"]
        path.write_text(json.dumps([{"workload": n, "weight": w} for w, n in enumerate(names, 1)]))
    out = tmp_path / "times.jsonl"
    words = [str(small), "--trials", "6", "--seconds", "60", "--out", str(out)]
    words += ["--measurer", f"simulated:{machine}", "--target", str(target), "--threads", "1"]
    assert network_times.main(words) == 0
    assert network_times.main([*words, "--after", str(relative)]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["after"] for line in lines] == [None, str(relative)]
    assert all(line["layers"] == 2 and line["totals"] for line in lines)
    shown = capsys.readouterr().out
    assert shown.count("| empty |") == 2
    assert f"| after {relative} |" in shown
