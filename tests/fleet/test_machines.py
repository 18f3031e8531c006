"""Which machines a fleet has, who may work on one job, and what `--target` may name."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from tests.support.fleet.simulated import TARGET, another_target
from tilewright.schedules.errors import TargetError
from tilewright.schedules.record import Toolchain
from tilewright.schedules.target import Probes, Target
from tilewright.service import timeouts
from tilewright.service.errors import CannotServe
from tilewright.service.fleet import worker
from tilewright.service.fleet.processes import check_exposure
from tilewright.tuner.codegen.version import CODEGEN_VERSION
from tilewright.tuner.measure.fleet import describe
from tilewright.tuner.measure.fleet.address import FleetError, parse_address
from tilewright.tuner.measure.fleet.machines import (
    LABEL,
    FleetMachine,
    able,
    alike,
    fleet_target,
    largest_group,
    machines_of,
    resource_name,
    with_fleet_probes,
)
from tilewright.tuner.measure.fleet.messages import MachineDescription, Note
from tilewright.tuner.measure.measurer_spec import parse_measurer
from tilewright.tuner.measure.protocol import MeasurerError

REAL = Toolchain(CODEGEN_VERSION, "0.50.0", "20.1.8")
HERE = TARGET


def machine(name: str, target: Target = HERE, toolchain: Toolchain = REAL) -> FleetMachine:
    return FleetMachine(f"tcp://{name}:1", name, target, toolchain, "local", {})


def probed(peak: float, memory: float = 20.0) -> Target:
    return replace(HERE, probes=Probes({"f32": [peak]}, {"memory": [memory]}))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://10.0.0.1:8786", "tcp://10.0.0.1:8786"),
        ("tls://build-1.example:8786/", "tls://build-1.example:8786"),
        ("127.0.0.1:1", "tcp://127.0.0.1:1"),
        ("tcp://[::1]:8786", "tcp://[::1]:8786"),
    ],
)
def test_addresses_are_spelled_as_dask_does(text: str, address: str) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "host", "ucx://h:1", "tcp://h:0", "tcp://h:70000", "h:1/x", "tcp://a b:1"]
)
def test_other_addresses_are_refused_before_anything_is_connected(text: str) -> None:
    with pytest.raises(MeasurerError):
        parse_measurer(f"dask:{text}")


def test_only_machines_of_the_kind_with_enough_cores_and_this_code_generator_may_measure() -> None:
    old = Toolchain(CODEGEN_VERSION - 1, "0.40", "14")
    mine, cores = machine("mine"), HERE.cores
    others = [machine("other", another_target()), machine("old", toolchain=old)]
    assert able([mine, *others], HERE) == [mine]
    assert able([mine], replace(HERE, threads=cores)) == [mine]
    assert able([mine], replace(HERE, threads=cores + 1)) == []


def test_machines_of_one_kind_that_are_not_equally_fast_are_unlike() -> None:
    fast, same, slow = (machine(n, probed(p)) for n, p in (("a", 100), ("b", 95), ("c", 60)))
    starved = machine("d", probed(100, memory=10))
    other_compiler = machine("e", probed(100), replace(REAL, llvm="21"))
    assert alike(fast, same)
    assert alike(fast, machine("unprobed"))
    assert not any(alike(fast, m) for m in (slow, starved, other_compiler))
    assert [m.name for m in largest_group([slow, fast, starved, same])] == ["a", "b"]
    assert largest_group([]) == []


def test_a_target_is_named_by_machine_key_or_native() -> None:
    mine, other = machine("mine", probed(100)), machine("other", another_target())
    assert fleet_target([mine, other], "other", None).cpu == "x86-64-v2"
    assert fleet_target([mine, other], other.key[:8], 2) == another_target(threads=2)
    assert fleet_target([mine, other], "native", None, HERE).probes == mine.target.probes
    assert fleet_target([other], "native", None, HERE).cpu == "x86-64-v2"
    assert fleet_target([], "native", 2, HERE) == HERE.with_threads(2)


@pytest.mark.parametrize("spec", ["native", "nobody", "", "0" * 64])
def test_a_target_that_is_none_or_several_is_refused_with_what_there_is(spec: str) -> None:
    machines = [machine("mine"), machine("other", another_target())]
    with pytest.raises(TargetError, match=r"there are x86-64-v2 \(.*\), x86-64-v3 \("):
        fleet_target(machines, spec, None)


def test_a_target_from_a_file_gets_the_probes_of_its_machines() -> None:
    bare = replace(HERE, probes=Probes())
    assert with_fleet_probes([machine("mine", probed(100))], bare).probes.peak_gflops
    assert with_fleet_probes([machine("other", another_target())], bare) == bare


def test_workers_that_are_no_machines_of_ours_are_passed_over() -> None:
    label = MachineDescription("mine", HERE, REAL).to_bytes().decode()
    newer = json.dumps({**json.loads(label), "version": 99})
    resources = {resource_name(HERE): 1.0, "GPU": 0.0}
    sound = {LABEL: label, "resources": resources}
    workers = {
        "tcp://a:1": {**sound, "metrics": {LABEL: {"busy": True, "measured": 3}}},
        "tcp://b:1": {"resources": resources, "metrics": {}},
        "tcp://c:1": {**sound, LABEL: newer},
        "tcp://d:1": {**sound, "status": "closing"},
        "tcp://e:1": {**sound, "resources": {}},
    }
    (found,) = machines_of({"workers": workers})
    assert (found.address, found.busy, found.measured) == ("tcp://a:1", True, 3)
    assert found.target == HERE
    assert json.loads(json.dumps(found.to_json()))["target"]["key"] == found.key


@pytest.mark.parametrize("text", [b"", b"[]", b'{"version":1}', b'{"version":2}'])
def test_notes_of_other_versions_are_refused(text: bytes) -> None:
    with pytest.raises(FleetError):
        Note.from_bytes(text)


def test_a_scheduler_that_others_can_reach_needs_certificates_or_a_word() -> None:
    assert check_exposure("tcp://127.0.0.1:8786", unprotected=False) == "tcp://127.0.0.1:8786"
    assert check_exposure("tls://0.0.0.0:8786", unprotected=False)
    assert check_exposure("tcp://0.0.0.0:8786", unprotected=True)
    for address in ("tcp://0.0.0.0:8786", "tcp://[::]:8786", "tcp://build-1:8786"):
        with pytest.raises(CannotServe, match="without certificates"):
            check_exposure(address, unprotected=False)


def test_a_worker_that_finds_no_scheduler_says_so_and_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = iter(["no scheduler answers at tcp://h:1", "no scheduler answers at tcp://h:1", ""])
    told: list[str] = []
    monkeypatch.setattr(timeouts, "FLEET_WORKER_POLL_SECS", 0.0)
    monkeypatch.setattr(worker, "_missing", lambda address: next(found))
    monkeypatch.setattr("tilewright.service.fleet.processes.machine", lambda *_: nullcontext())
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(describe, "describe", lambda *_: MachineDescription("mine", HERE, REAL))
    monkeypatch.setattr("os.getppid", lambda: 1 if len(told) < 2 else 0)
    assert worker.join("tcp://h:1", on_wait=told.append, parent=1) == 0
    waits, joined = told
    assert "no scheduler answers at tcp://h:1; mine waits for the scheduler" in waits
    assert "mine measures on x86-64-v3" in joined
