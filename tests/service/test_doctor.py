"""`doctor`: each check sees what it is there to see."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, count, cycle
from pathlib import Path

import pytest

from tests.support.synthetic_sketch import synthetic_target
from tilewright.schedules.target import Probes
from tilewright.service import doctor
from tilewright.service.settings import is_loopback


def test_a_governor_that_saves_power_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "governor"
    assert doctor.governor(file).status == "ok"
    file.write_text("powersave\n")
    assert doctor.governor(file).status == "warn"
    file.write_text("performance\n")
    assert doctor.governor(file).status == "ok"


def test_stolen_time_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    assert doctor.steal(file).status == "ok"
    file.write_text("cpu 10 0 10 70 0 0 0 10 0 0\ncpu0 1\n")
    assert doctor.steal(file).status == "warn"
    file.write_text("cpu 10 0 10 80 0 0 0 0 0 0\n")
    assert doctor.steal(file).status == "ok"
    file.write_text("nonsense\n")
    assert doctor.steal(file).status == "ok"


def test_settings_that_hold_libraries_down_are_told() -> None:
    assert doctor.library_settings({"HOME": "/"}).status == "ok"
    found = doctor.library_settings(
        {"OPENBLAS_CORETYPE": "Haswell", "OMP_NUM_THREADS": "1", "HOME": "/"}
    )
    assert found.status == "warn"
    assert found.detail == "OMP_NUM_THREADS=1, OPENBLAS_CORETYPE=Haswell"


def test_work_that_varies_is_noise() -> None:
    steady, jumpy = count(), accumulate(cycle([1.0, 1.3, 1.3, 1.3]))
    assert doctor.noise(lambda: next(steady) * 0.001).status == "ok"
    assert doctor.noise(lambda: next(jumpy) * 0.001).status == "warn"


@pytest.mark.parametrize(
    ("installed", "status"),
    [(set(), "ok"), ({"xgboost"}, "ok"), ({"xgboost", "xgboost-cpu"}, "warn")],
)
def test_two_installations_of_xgboost_are_a_warning(
    installed: set[str], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "1" if name in installed else "")
    assert doctor.double_xgboost().status == status


@pytest.mark.parametrize(
    ("known", "status"),
    [
        (Probes(), "ok"),
        (Probes({"f32": [1.0]}), "ok"),
        (Probes({"f32": [1.0]}, doubtful=True), "warn"),
    ],
)
def test_probes_of_a_busy_machine_are_a_warning(
    known: Probes, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = replace(synthetic_target(), probes=known)
    monkeypatch.setattr(
        "tilewright.tuner.machine.native_target.native_target", lambda probe: target
    )
    assert doctor.probes().status == status


def test_a_library_that_is_missing_hides_no_other_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(url: str | None) -> str:
        raise ModuleNotFoundError("No module named 'sqlalchemy'", name="sqlalchemy")

    monkeypatch.setattr("tilewright.service.database.database_state", state)
    found = doctor.database(None)
    assert (found.status, found.detail) == (
        "fail",
        "cannot be opened: No module named 'sqlalchemy'",
    )


def test_a_database_that_is_none_says_what_would_do(tmp_path: Path) -> None:
    found = doctor.database(str(tmp_path))
    assert (found.status, found.advice) == ("fail", "Name another with --db or TILEWRIGHT_DB.")


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.168.1.2", False), ("myhost", False), ("", False)],
)  # fmt: skip
def test_which_addresses_only_this_machine_can_reach(host: str, local: bool) -> None:
    assert is_loopback(host) is local
