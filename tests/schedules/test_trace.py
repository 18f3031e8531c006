"""Traces: text, hashes, JSON and replay, also of documents nobody should send."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.schedules.workloads import matmul
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.primitives import PRIMITIVES, Split, Vectorize
from tilewright.schedules.rewrites import REWRITES
from tilewright.schedules.trace import MAX_STEPS, Step, Trace

NAMES = st.text("abs0.dtr", min_size=0, max_size=6)
PAIRS = st.tuples(st.integers(-2, 70), st.integers(0, 70))
FIELDS = {
    str: NAMES,
    int: st.integers(-5, 10**6),
    bool: st.booleans(),
    tuple[str, ...]: st.lists(NAMES, max_size=4).map(tuple),
    tuple[int, ...]: st.lists(st.integers(-5, 10**6), max_size=4).map(tuple),
    tuple[tuple[int, int], ...]: st.lists(PAIRS, max_size=4).map(tuple),
}


def any_step(kind: type[Step]) -> st.SearchStrategy[Step]:
    from typing import get_type_hints

    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: FIELDS[hints[field.name]] for field in fields(kind)})


KINDS: tuple[type[Step], ...] = (*PRIMITIVES, *REWRITES)

TRACES = st.lists(st.one_of([any_step(kind) for kind in KINDS]), max_size=8).map(
    lambda steps: Trace(tuple(steps))
)


@given(TRACES)
def test_json_brings_every_trace_back(trace: Trace) -> None:
    again = Trace.from_json(json.loads(json.dumps(trace.to_json())))
    assert again == trace
    assert hash(again) == hash(trace)
    assert str(again) == str(trace)


def test_traces_print_a_step_a_line_and_compare_by_their_steps() -> None:
    trace = Trace((Split("i", 4), Vectorize("ii")))
    assert str(trace) == "Split(loop='i', factor=4)\nVectorize(loop='ii')"
    assert trace != Trace((Vectorize("ii"), Split("i", 4)))
    assert Trace() == Trace(())


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "a trace is a list of at most 4000 steps"),
        (None, "a trace is a list"),
        ("Split", "a trace is a list"),
        ([{"do": "Split", "loop": "i", "factor": 2}] * (MAX_STEPS + 1), "at most 4000 steps"),
        ([{"do": "Split", "loop": "i", "factor": 2}, {"do": "Spilt"}], 'step 1: "do" must be one'),
        ([17], r'step 0: "do" must be one of .*; found 17'),
        ([{}], "step 0"),
        ([{"do": ["Split"]}], r"step 0: \"do\" must be one of"),
        ([{"do": {}}], "step 0"),
        ([{"do": "Split", "loop": "i"}], r"step 0: Split takes \['factor', 'loop'\], found"),
        ([{"do": "Split", "loop": "i", "factor": 2, "x": 1}], "step 0: Split takes"),
        ([{"do": "Split", "loop": 3, "factor": 2}], "Split.loop: must be str, found 3"),
        ([{"do": "Split", "loop": "i", "factor": True}], "Split.factor: must be int, found True"),
        ([{"do": "Split", "loop": "i", "factor": 2.0}], "Split.factor: must be int"),
        ([{"do": "Split", "loop": None, "factor": 2}], "Split.loop: must be str"),
        ([{"do": "Reorder", "order": "ij"}], "Reorder.order: must be a list, found 'ij'"),
        ([{"do": "Reorder", "order": [["i"]]}], "Reorder.order: must be str"),
        (
            [{"do": "TransformLayout", "buffer": "b", "split": [[1]], "dims": []}],
            "must be a list of pairs of integers",
        ),
        (
            [{"do": "TransformLayout", "buffer": "b", "split": [[1, "2"]], "dims": []}],
            "TransformLayout.split: must be int",
        ),
    ],
)
def test_hostile_documents_are_told_the_step_and_the_field(document: object, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Trace.from_json(document)


def test_the_first_illegal_step_is_the_one_that_is_named() -> None:
    with pytest.raises(ScheduleError, match=r"Split\(loop='s0.d0', factor=3\): there is no loop"):
        Trace((Split("s0.d0", 2), Split("s0.d0", 3))).apply(plain_nest(matmul()))


REPLAY = """
import hashlib, json, sys
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tests.support.schedule_fuzz.check import this_machine
from tilewright.tuner.emit.kernel import compile_kernel, llvm_text
workload, trace = json.loads(sys.stdin.read())
parts = Workload.from_json(workload), Trace.from_json(trace), this_machine(2)
text = llvm_text(*parts)
print(hashlib.sha256(text.encode()).hexdigest(), compile_kernel(*parts).object_sha256)
"""


def test_a_trace_replays_to_the_same_bytes_in_any_process() -> None:
    from tests.support.schedule_fuzz.check import this_machine
    from tilewright.schedules.sketches import space_for

    workload = matmul(33, 31, 17)
    space = space_for(workload, this_machine(2))
    document = json.dumps([workload.to_json(), space.trace(space.default()).to_json()])
    found = {
        subprocess.run(
            [sys.executable, "-c", REPLAY],
            input=document, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1
