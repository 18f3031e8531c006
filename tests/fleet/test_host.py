"""The far side without Dask: an order on this machine's own processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.fleet.simulated import another_target
from tilewright.schedules import operators
from tilewright.schedules.primitives import Split
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.target import Probes
from tilewright.schedules.trace import Trace
from tilewright.tuner import timeouts
from tilewright.tuner.emit.object_code import toolchain
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.measure.fleet import host as host_module
from tilewright.tuner.measure.fleet.host import FleetHost, RequestAbandoned
from tilewright.tuner.measure.fleet.messages import FleetRequest, MachineDescription, Note, Purpose
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.process.control import Control

WORKLOAD = operators.build("matmul", M=17, N=16, K=16).normalised()
TRACES = (Trace(), Trace((Split("no_such_axis", 4),)))


@pytest.fixture(scope="module")
def host() -> Iterator[FleetHost]:
    here = replace(detect(), probes=Probes())
    host = FleetHost(MachineDescription("here", here, toolchain()))
    yield host
    host.close()


def order(
    host: FleetHost, purpose: Purpose = "measure", positions: tuple[int, ...] = (4, 7)
) -> FleetRequest:
    """As it arrives: through its bytes."""
    requests = {p: MeasureRequest(p + 1, t) for p, t in zip(positions, TRACES, strict=False)}
    document = WORKLOAD.to_json()
    target = host.description.target
    sent = FleetRequest("t1", "topic", purpose, document, target, 0, requests)
    return FleetRequest.from_bytes(sent.to_bytes())


def told_by(host: FleetHost, given: FleetRequest, wanted: int = 99) -> list[Note]:
    """The notes as they arrive; the order is wanted until `wanted` results are there."""
    notes: list[Note] = []

    def is_wanted() -> bool:
        return sum(note.kind == "result" for note in notes) < wanted

    host.run_request(given, lambda note: notes.append(Note.from_bytes(note.to_bytes())), is_wanted)
    return notes


def test_each_candidate_is_answered_by_its_position(host: FleetHost) -> None:
    first, *results, last = told_by(host, order(host))
    assert (first.kind, last.kind) == ("begun", "ended")
    found = {note.position: note.result for note in results}
    assert found.keys() == {4, 7}
    assert found[4] is not None
    assert found[4].ok
    assert found[7] is not None
    assert found[7].status is MeasureStatus.NOT_LEGAL


def test_results_say_how_long_their_full_checks_will_take(host: FleetHost) -> None:
    by_position = {note.position: note.check_secs for note in told_by(host, order(host))}
    assert by_position[4] > 0.0
    assert by_position[7] == 0.0  # it is not legal, so it is never checked


def test_the_full_check_runs_there_as_well(host: FleetHost) -> None:
    _, note, _ = told_by(host, order(host, "confirm", (0,)))
    assert note.result is not None
    assert note.result.ok


def test_an_order_that_is_not_wanted_ends_at_the_next_candidate(host: FleetHost) -> None:
    with pytest.raises(RequestAbandoned):
        told_by(host, order(host), wanted=1)
    assert not host.busy
    assert told_by(host, order(host))[-1].kind == "ended"


def test_what_this_machine_cannot_measure_it_refuses(host: FleetHost) -> None:
    foreign = replace(order(host), target=another_target())
    refusal = told_by(host, foreign)[-1]
    assert (refusal.kind, refusal.error) == ("refused", "TargetError")
    assert "not a machine of kind" in refusal.detail
    huge = operators.build("matmul", M=1 << 20, N=1 << 20, K=8).normalised().to_json()
    refusal = told_by(host, replace(order(host), workload=huge))[-1]
    assert (refusal.error, refusal.code) == ("WorkloadError", "too_large")


def test_a_machine_keeps_few_workloads_open_and_none_when_idle(
    host: FleetHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(host_module.MAX_OPEN_MEASURERS + 1):
        told_by(host, replace(order(host), seed=seed))
    assert len(host._open) == host_module.MAX_OPEN_MEASURERS
    host.close_idle()
    assert len(host._open) == host_module.MAX_OPEN_MEASURERS
    monkeypatch.setattr(timeouts, "HOST_IDLE_SECS", 0.0)
    host.close_idle()
    assert not host._open


class Endless:
    """A measurer whose native work ends only by being killed."""

    def __init__(self) -> None:
        self.killed = threading.Event()
        self.closed = False
        self.control = Control()

    def attach(self, control: Control) -> None:
        self.control = control
        control.on_abort(self.killed.set)

    def measure(self, *_: object) -> list[MeasureResult]:
        assert self.killed.wait(30)
        self.control.check()
        raise AssertionError("killed, and not told so")

    def __enter__(self) -> Endless:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def test_what_nobody_wants_any_more_is_killed_in_the_middle(
    host: FleetHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Endless] = []

    def factory(*_: object) -> Endless:
        made.append(Endless())
        return made[-1]

    monkeypatch.setattr(host_module, "local_factory", lambda spec: factory)
    endless = replace(order(host), seed=77)
    for _ in range(2):  # the second is opened anew
        with pytest.raises(RequestAbandoned):
            told_by(host, endless, wanted=0)
        assert made[-1].closed
        assert not host.busy
    assert len(made) == 2
