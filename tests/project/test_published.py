"""Every figure in the marked tables of README and docs is in a committed result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.publish import PUBLISHED, TEXTS, filled, keep, problems
from benchmarks.published_tables import tables
from benchmarks.suite.results import Result, ResultsFile
from benchmarks.tuning_curve import curve_of, described, levels_of, read
from tests.support.benchmark_rows import row_data
from tests.support.paths import ROOT


def test_texts_say_what_was_published() -> None:
    assert problems() == []


def test_a_figure_changed_by_hand_is_found() -> None:
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in TEXTS)
    assert "<!-- published: families -->" in text
    assert "<!-- published: demo -->" in text
    start = text.index("<!-- published: families -->")
    place = text.index("x", text.index("GEMM", start))
    changed = f"{text[: place - 1]}{9 - int(text[place - 1])}{text[place:]}"
    (found,) = problems({"README.md": changed})
    assert "'families' is not what was published" in found


def test_the_picture_in_the_readme_shows_committed_reports() -> None:
    folder = PUBLISHED / "tuning_curve"
    reports, bench = read(
        [folder / "annealing.json", folder / "random.json"], folder / "bench.json"
    )
    figures = described(list(map(curve_of, reports)), levels_of(reports[0], bench))
    picture = (ROOT / "docs" / "images" / "tuning_curve.svg").read_text(encoding="utf-8")
    assert f"<dc:description>{figures}</dc:description>" in picture


def test_a_table_nobody_makes_is_found() -> None:
    text = "<!-- published: no-such -->\nx\n<!-- end -->"
    (found,) = problems({"a.md": text})
    assert "no published table 'no-such'" in found


def test_published_rows_name_their_libraries_ways_and_machine() -> None:
    results = ResultsFile(PUBLISHED / "suite.jsonl")
    assert results.rows
    for machine in results.sessions.values():
        assert {"model", "commit", "removed_variables", "libraries", "versions"} <= machine.keys()
    for row in results.rows.values():
        assert row.session in results.sessions
        sides = [row.data["race"].get(name, {}) for name in ("numpy", "torch")]
        assert all(side.get("way") or side.get("missing") for side in sides), row.key


def test_what_is_kept_is_enough_for_every_table(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "results" / "results.jsonl")
    machine = {
        "model": "a CPU", "cpu": "znver5", "cores": 2, "vector_bits": 512, "python": "3.11",
        "peak_gflops": [250.0], "bandwidth_gbs": {"memory": [40.0]}, "compiler": "cc",
        "commit": "abc", "removed_variables": {"OPENBLAS_CORETYPE": "Haswell"},
    }  # fmt: skip
    session = results.begin(machine)
    data = row_data("mm", "gemm", 1, 0.951234567, 0.9)
    data["of_peak"] = {"median": 0.93, "low": 0.92, "high": 0.94}
    data["bound"]["secs"] = 1e-5
    data["tune"] |= {"wall_secs": 1.0, "space_size": 12}
    data["tune"]["workload"]["key"] = "key"
    libraries = {"numpy": "2.4.6", "blas": "OpenBLAS 0.3", "core": "SkylakeX"}
    data["race"]["numpy"] |= {
        "way": "np.dot", "libraries": libraries, "run_secs": 4e-5, "dispatch_secs": 1e-5,
    }  # fmt: skip
    data["race"]["torch"] = {
        "way": "torch.mm", "ratio": data["against_best_peer"], "run_secs": 9e-5,
        "compiled_secs": {"eager": 8e-5, "compiled": 6e-5},
        "dropped": {"torch.compile (max-autotune-no-cudagraphs)": "ValueError: takes too long"},
    }  # fmt: skip
    results.add(Result("suite/gemm/mm/1t", "now", session, 0.0, data))
    results.add(Result("suite/gemm/bad/1t", "now", session, 0.0, {"failed": "why"}))
    keep(tmp_path / "results", tmp_path / "published")
    kept = (tmp_path / "published" / "suite.jsonl").read_text().splitlines()
    assert len(kept) == 2
    assert "space_size" not in kept[1]
    assert json.loads(kept[0])["machine"]["libraries"] == {"numpy 1t": libraries}
    blocks = tables(tmp_path / "published")
    assert "OPENBLAS_CORETYPE=Haswell" in blocks["machine"]
    assert "with SkylakeX kernels" in blocks["machine"]
    assert "| 0.95x / - | 0.95x mm 1t | **no** |" in blocks["families"]
    assert "| mm | 1 | 0.951x |" in blocks["under"]
    assert "0.93" in blocks["products"]
    assert "| mm | 1 | 20 us | 40 us | 10 us | 0.95x | 1.50x | numpy: np.dot |" in blocks["short"]
    assert "| 1 | 0.75 | 1 | 3.00x |" in blocks["compiled"]
    assert "1 variants failed: ValueError: takes too long" in blocks["compiled"]
    assert "| torch | calls that were fastest once | 1 |" in blocks["ways"]
    assert filled("<!-- published: under -->\nold\n<!-- end -->", blocks).count("mm") == 1


@pytest.mark.parametrize("name", TEXTS)
def test_markers_are_closed(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text.count("<!-- published: ") == text.count("<!-- end -->")
