"""Plant mistakes and hold them against the verification every candidate goes through.

A mutant is compiled in a compile worker and run in the runner's forked child, like a candidate:
guard pages, poison, races and comparison, then the full check if the quick one lets it pass.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tests.support.planting import nests as planting_nests
from tests.support.planting import text as planting_text
from tests.support.planting.bases import Base
from tests.support.planting.equivalents import why_equivalent
from tests.support.planting.examiner import examine
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.nest.loop_ir import Nest
from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.tuner.codegen.abi import Needs
from tilewright.tuner.codegen.generate import generate
from tilewright.tuner.codegen.module import GeneratedModule
from tilewright.tuner.compiling.pool import Compiled, CompilePool
from tilewright.tuner.emit.kernel import CompiledKernel
from tilewright.tuner.emit.object_code import emit_object
from tilewright.tuner.judge.cases import DEFAULT_CASES
from tilewright.tuner.measure.checking.requests import checked_in_full, kernel_job
from tilewright.tuner.measure.checking.runner_client import RunnerClient
from tilewright.tuner.process.environment import openmp_environment

COMPILER = "tests.support.planting.run:compile_mutant"
SYMBOL = "kernel"
_DEADLINE_SECS, _FIRST_DEADLINE_SECS = 3.0, 60.0
_KEPT_BYTES = 4 << 30  # of cases: hundreds of mutants are held against them

# What code generation raises for a nest that breaks the rules it relies on: no such loop or
# buffer, an index it cannot take apart, two lanes that are one element.
_REFUSALS = (ScheduleError, AssertionError, KeyError, IndexError, ValueError, TypeError)


@dataclass(frozen=True)
class Mutant:
    """One planted mistake: `edit` says what `operator` changed in `base`.

    `level` is "nest" or "text", where it was planted; "none" for the kernel that must pass in full.
    `trace` is what it was made by; None: by that of its base.
    `made` is what the generator says beside the text: sizes of workspace and packed memory.
    """

    base: str
    operator: str
    edit: str
    text: str
    made: GeneratedModule
    level: str
    trace: Trace | None = None

    @property
    def name(self) -> str:
        return f"{self.base} / {self.operator}: {self.edit}"


class Verdict(StrEnum):
    """What became of a mutant. Everything but the first two needs no one's attention.

    - missed: verification passed it, and nobody explained why it is right
    - alarm: a kernel with nothing planted in it was rejected
    - quick: caught before timing. full: caught before it could become best
    - equivalent: passed, and the table says why it computes the same, or the examiner found it does
    - same: the object file is byte for byte that of the right kernel
    - refused: the code generator or LLVM does not take it
    """

    MISSED = "missed"
    ALARM = "alarm"
    QUICK = "quick"
    FULL = "full"
    EQUIVALENT = "equivalent"
    SAME = "same"
    REFUSED = "refused"


@dataclass(frozen=True)
class Judged:
    """A mutant with its verdict; `status` and `detail` are the measurement's."""

    mutant: Mutant
    verdict: Verdict
    status: MeasureStatus
    detail: str


def right_kernel(base: Base, level: str = "none") -> Mutant:
    """The kernel of `base` with nothing planted in it."""
    made = generate(base.nest, base.target, SYMBOL)
    return Mutant(base.name, "nothing", "", made.text, made, level, base.trace)


def plant(base: Base, seed: int, each: int) -> list[Mutant]:
    """Up to `each` mistakes of every kind in `base`; the seed says where."""
    nest = base.nest
    right = generate(nest, base.target, SYMBOL)
    planted: list[Mutant] = []
    for on_nest in planting_nests.OPERATORS:
        for edit, changed in _some(on_nest(nest), f"{seed} {base.name} {on_nest.__name__}", each):
            mutant = _from_nest(base, on_nest.__name__, edit, changed)
            if mutant is not None:
                planted.append(mutant)
    for on_text in planting_text.OPERATORS:
        name = on_text.__name__
        for edit, text in _some(on_text(right.text), f"{seed} {base.name} {name}", each):
            planted.append(Mutant(base.name, name, edit, text, right, "text"))
    sizes = tuple(t.bytes for t in base.workload.arguments)
    edits = planting_text.beyond(right.text, sizes, len(base.workload.inputs))
    for edit, text in _some(edits, f"{seed} {base.name} beyond", each):
        planted.append(Mutant(base.name, "beyond", edit, text, right, "text"))
    return planted


def _some(edits: Iterable[tuple[str, Any]], chance: str, each: int) -> list[tuple[str, Any]]:
    found = list(edits)
    return random.Random(chance).sample(found, min(each, len(found)))


def _from_nest(base: Base, operator: str, edit: str, nest: Nest) -> Mutant | None:
    try:
        made = generate(nest, base.target, SYMBOL)
    except _REFUSALS:
        return None
    return Mutant(base.name, operator, edit, made.text, made, "nest")


def compile_mutant(document: dict[str, Any]) -> CompiledKernel:
    """What a compile worker does with a mutant."""
    target = Target.from_json(document["target"])
    return CompiledKernel(
        object_bytes=emit_object(document["text"], target),
        symbol=SYMBOL,
        workspace_bytes=document["workspace_bytes"],
        argument_bytes=(),
        input_count=0,
        threads=target.threads,
        uses_openmp=target.threads > 1,
    )


def judge(
    base: Base,
    mutants: list[Mutant],
    pool: CompilePool,
    seed: int,
    *,
    full: bool = True,
    examined: bool = False,
) -> Iterator[Judged]:
    """Each mutant of `base` with its verdict, after the right kernel, which must pass.

    Without `full`, what passes the quick check is taken for missed (or equivalent). `examined`:
    survivors that the table does not explain are run beside the right kernel on other inputs.
    """
    document = {
        "cases": DEFAULT_CASES,
        "workload": base.workload.to_json(),
        "seed": seed,
        "lanes": base.target.vector_bits // 32,
        "cpus": [],
        "kept_bytes": _KEPT_BYTES,
    }
    environment = openmp_environment(base.target.threads)
    with (
        RunnerClient(document, environment=environment) as runner,
        ThreadPoolExecutor(max_workers=1) as aside,  # survivors are examined beside the next check
    ):
        examinations = []
        right = right_kernel(base)
        compiled = compile_all([right, *mutants], base, pool)
        expected = compiled[0].object_bytes
        deadline_secs = _FIRST_DEADLINE_SECS
        for mutant, built in zip([right, *mutants], compiled, strict=True):
            if built.status is not MeasureStatus.OK:
                yield Judged(mutant, Verdict.REFUSED, built.status, built.detail)
            elif mutant is not right and built.object_bytes == expected:
                yield Judged(mutant, Verdict.SAME, MeasureStatus.OK, "")
            else:
                start = time.perf_counter()
                judged = _run(mutant, built, base, runner, full=full, deadline_secs=deadline_secs)
                if mutant is right:  # all cases are in this time, so it allows much
                    secs = time.perf_counter() - start
                    deadline_secs = max(_DEADLINE_SECS, min(secs, _FIRST_DEADLINE_SECS))
                if examined and judged.verdict is Verdict.MISSED:
                    examinations.append(
                        aside.submit(_examined, judged, base, expected, built.object_bytes)
                    )
                else:
                    yield judged
        for examination in examinations:
            yield examination.result()


def compile_all(mutants: list[Mutant], base: Base, pool: CompilePool) -> list[Compiled]:
    """How the compilation of each mutant ended."""
    for key, mutant in enumerate(mutants):
        pool.submit(
            key,
            {
                "text": mutant.text,
                "workspace_bytes": mutant.made.workspace_bytes,
                "target": base.target.to_json(),
            },
        )
    done: dict[int, Compiled] = {}
    while len(done) < len(mutants):
        done.update((outcome.key, outcome) for outcome in pool.poll(None))
    return [done[key] for key in range(len(mutants))]


def _examined(judged: Judged, base: Base, right: bytes, changed: bytes) -> Judged:
    """A survivor after a closer look: equivalent, or missed with what is wrong about it."""
    jobs = (_job(right_kernel(base), base), _job(judged.mutant, base))
    found = examine(base.workload, jobs, right, changed)
    if found.reason is None:
        return replace(judged, detail=found.detail)
    return replace(judged, verdict=Verdict.EQUIVALENT, detail=found.reason)


def _job(mutant: Mutant, base: Base) -> dict[str, Any]:
    needs = Needs(
        mutant.made.workspace_bytes,
        tuple(n for n, t in enumerate(base.workload.inputs) if t.constant),
        mutant.made.packed_bytes,
        mutant.made.prepacked_workspace_bytes,
    )
    return kernel_job(SYMBOL, base.target.threads, needs, mutant.trace or base.trace) | {
        "timed": False
    }


def _run(
    mutant: Mutant,
    built: Compiled,
    base: Base,
    runner: RunnerClient,
    *,
    full: bool,
    deadline_secs: float,
) -> Judged:
    job = _job(mutant, base)
    quick = _answer(runner, job, built.object_bytes, "measure", deadline_secs)
    if mutant.level == "none":
        quick = _answer(runner, checked_in_full(job), built.object_bytes, "check", deadline_secs)
        verdict = Verdict.SAME if quick.ok else Verdict.ALARM
        return Judged(mutant, verdict, quick.status, quick.detail)
    if not quick.ok:
        return Judged(mutant, Verdict.QUICK, quick.status, quick.detail)
    if full:
        answer = _answer(runner, checked_in_full(job), built.object_bytes, "check", deadline_secs)
        if not answer.ok:
            return Judged(mutant, Verdict.FULL, answer.status, answer.detail)
    reason = why_equivalent(mutant.base, mutant.operator, mutant.edit)
    verdict = Verdict.MISSED if reason is None else Verdict.EQUIVALENT
    return Judged(mutant, verdict, MeasureStatus.OK, reason or "")


@dataclass(frozen=True)
class _Answer:
    status: MeasureStatus
    detail: str

    @property
    def ok(self) -> bool:
        return self.status is MeasureStatus.OK


def _answer(
    runner: RunnerClient, job: dict[str, Any], blob: bytes, op: str, deadline_secs: float
) -> _Answer:
    runner.submit(job, blob, deadline_secs, op)
    document = runner.result()
    return _Answer(MeasureStatus(document["status"]), document.get("detail") or "")
