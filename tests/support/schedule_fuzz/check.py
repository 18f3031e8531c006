"""Interpreter, compiled kernel and NumPy on one (workload, trace) pair: all must agree."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.interpreter.interpret import interpret_for
from tilewright.schedules.errors import ScheduleError, WorkloadError
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import Allocate, For, Nest, Stmt, walk
from tilewright.schedules.sketches import space_for
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.backend.cpu.loading.entries import timed_entry
from tilewright.tuner.backend.cpu.loading.loader import load_object, use_openmp
from tilewright.tuner.codegen.abi import Needs
from tilewright.tuner.emit.kernel import CompiledKernel, compile_nest
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.oracle import Oracle

from .traces import random_trace
from .workloads import random_workload

Array = npt.NDArray[Any]

INTERPRETED_EXECUTIONS = 30_000
"""Statements above which a pair is not interpreted: about a tenth of a second."""

MAX_EXECUTIONS = 5_000_000
"""Statements above which it is not run either: copies of padding can be far larger than data."""

MAX_BYTES = 1 << 27
"""The same for the bytes of private buffers."""

_MARGIN = 128
_POISON = (0xA5, 0xFF)


class DisagreementError(AssertionError):
    """Two of the three ways to a result differ, or one of them failed."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A workload with a legal trace, for kernels of up to `threads` threads."""

    kind: str
    workload: Workload
    trace: Trace
    threads: int
    vector_bits: int = 256

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "workload": self.workload.to_json(),
            "trace": self.trace.to_json(),
            "threads": self.threads,
            "vector_bits": self.vector_bits,
        }

    @staticmethod
    def from_json(document: dict[str, Any]) -> Pair:
        return Pair(
            document["kind"],
            Workload.from_json(document["workload"]),
            Trace.from_json(document["trace"]),
            document["threads"],
            document["vector_bits"],
        )


USUAL_CACHES = (Cache(32768, 8), Cache(524288, 8), Cache(1 << 25, 16))
SMALL_CACHES = (Cache(512, 2), Cache(2048, 4), Cache(1 << 20, 16, shared=True))
"""Caches that small operands exceed, so that rules for large operands apply to them."""

CACHES = (USUAL_CACHES, SMALL_CACHES)


def this_machine(
    threads: int = 1, vector_bits: int = 256, caches: tuple[Cache, ...] = USUAL_CACHES
) -> Target:
    """The host's instructions with made-up caches, and vectors of any width (LLVM splits them)."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return Target(
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=tuple(sorted(name for name, on in features.items() if on)),
        vector_bits=vector_bits,
        vector_registers=32 if vector_bits == 512 else 16,
        caches=caches,
        cores=2,
        threads=threads,
    )


def random_pair(rng: random.Random, most_points: int, most_steps: int = 25) -> tuple[Pair, int]:
    """A pair whose trace is legal, and how many illegal steps were refused on the way.

    Half of the traces are random steps, half a random setting of a random sketch.
    """
    refused = 0
    while True:
        workload = random_workload(rng, most_points)
        threads, bits = rng.choice((1, 2)), rng.choice((128, 256, 256, 512))
        if rng.random() < 0.5:
            machine = this_machine(threads, bits, rng.choice(CACHES))
            trace = random_setting(rng, workload, machine)
            return Pair("knobs", workload, trace, threads, bits), refused
        trace, more = random_trace(rng, workload, most_steps)
        refused += more
        try:
            lower(workload, trace)
        except ScheduleError:
            refused += 1
            continue
        return Pair("steps", workload, trace, threads, bits), refused


def random_setting(rng: random.Random, workload: Workload, target: Target) -> Trace:
    """The trace of a feasible setting of one of the sketches for `workload`, now and then the
    default. A feasible setting with an illegal trace is a failure of the rules."""
    sketch = rng.choice(space_for(workload, target).sketches)
    sizes = [len(knob.values) for knob in sketch.knobs]
    drawn = np.random.default_rng(rng.getrandbits(32)).integers(0, sizes, (500, len(sizes)))
    feasible = drawn[sketch.feasible(drawn)]
    setting = sketch.default()
    if len(feasible) and rng.random() < 0.8:
        setting = tuple(int(i) for i in feasible[0])
    try:
        return sketch.trace(setting)
    except ScheduleError as error:
        raise DisagreementError(
            f"setting {setting} of {sketch.name} is feasible, and its trace is not legal: {error};"
            f" workload {json.dumps(workload.to_json())}"
        ) from error


def executions(nest: Nest) -> int:
    """How often the statements of `nest` run at the most."""

    def count(stmts: tuple[Stmt, ...]) -> int:
        total = 0
        for stmt in stmts:
            match stmt:
                case For():
                    total += stmt.extent * count(stmt.body)
                case Allocate():
                    total += count(stmt.body)
                case _:
                    total += 1
        return total

    return count(nest.body)


def usable_case(pair: Pair) -> Case | None:
    """Inputs with what must come out; None where all inputs overflow: nothing to compare with."""
    try:
        return Oracle(pair.workload, 1, pair.trace.rewrites).quick
    except WorkloadError:
        return None


_AGREED: dict[tuple[str, tuple[int, ...]], bool] = {}
"""What `check_pair` found of pairs without a fault, for it finds the same again."""


def check_pair(pair: Pair, *, poisons: tuple[int, ...] = _POISON) -> bool:
    """DisagreementError unless all agree; whether the pair could be judged and was interpreted.

    Exact results must be equal bit by bit, others lie within the bound of a correct kernel. Inputs
    and code follow from the pair, so one that is drawn again in this process is not run again.
    """
    key = (json.dumps({**pair.to_json(), "kind": ""}), poisons)  # as text 0.0 is not -0.0
    if key not in _AGREED:
        _AGREED[key] = _check_pair(pair, poisons)
    return _AGREED[key]


def _check_pair(pair: Pair, poisons: tuple[int, ...]) -> bool:
    case = usable_case(pair)
    if case is None:
        return False
    nest = lower(pair.workload, pair.trace)
    times = executions(nest)
    held = sum(s.buffer.bytes for s in walk(nest.body) if isinstance(s, Allocate))
    if times > MAX_EXECUTIONS or held > MAX_BYTES:
        return False
    interpreted = times <= INTERPRETED_EXECUTIONS
    if interpreted:
        _judge("interpreter", case, interpret_for(pair.workload, nest, list(case.inputs)))
    target = this_machine(pair.threads, pair.vector_bits)
    kernel = compile_nest(pair.workload, nest, target)
    results = [run_kernel(kernel, pair.workload, case, poison) for poison in poisons]
    if kernel.constants:
        results += [run_prepacked(kernel, pair.workload, case, poison) for poison in poisons]
    for outputs in results:
        _judge("kernel", case, outputs)
    for outputs in results[1:]:
        for a, b in zip(results[0], outputs, strict=True):
            if a.tobytes() != b.tobytes():
                raise DisagreementError(
                    "the kernel's result depends on what its memory held before"
                )
    return interpreted


def cleaned(pair: Pair) -> Nest:
    return lower(pair.workload, pair.trace)


def _judge(who: str, case: Case, outputs: list[Array]) -> None:
    problem = case.check(outputs)
    if problem is not None:
        raise DisagreementError(f"{who}: {problem}")


def run_kernel(
    kernel: CompiledKernel, workload: Workload, case: Case, poison: int = 0xA5
) -> list[Array]:
    """The outputs for the case's inputs. DisagreementError if it wrote where it must not."""
    use_openmp()
    loaded = load_object(kernel.object_bytes, kernel.symbol)
    inputs = [_Guarded(a.nbytes, poison, a) for a in case.inputs]
    outputs = [_Guarded(t.bytes, poison) for t in workload.output_tensors]
    workspace = _Guarded(kernel.workspace_bytes, poison)
    arguments = [g.address for g in (*inputs, *outputs, workspace)]
    status = loaded.caller(len(arguments))(*arguments)
    if status != 0:
        raise DisagreementError(f"the kernel returned {status}")
    for name, part in (("input", inputs), ("output", outputs), ("workspace", [workspace])):
        if not all(g.intact for g in part):
            raise DisagreementError(f"the kernel wrote outside its {name}")
    for guarded, array in zip(inputs, case.inputs, strict=True):
        if guarded.bytes != array.tobytes():
            raise DisagreementError("the kernel changed an input")
    return [
        np.frombuffer(g.bytes, t.dtype.numpy).reshape(t.shape)
        for g, t in zip(outputs, workload.output_tensors, strict=True)
    ]


def run_prepacked(
    kernel: CompiledKernel, workload: Workload, case: Case, poison: int = 0xA5
) -> list[Array]:
    """The same by the entries that pack constant inputs ahead: they are gone before the call."""
    use_openmp()
    loaded = load_object(kernel.object_bytes, kernel.symbol)
    needs = Needs(
        kernel.workspace_bytes,
        kernel.constants,
        kernel.packed_bytes,
        kernel.prepacked_workspace_bytes,
    )
    entry = timed_entry(loaded, kernel.symbol, needs, len(workload.arguments))
    inputs = [_Guarded(a.nbytes, poison, a) for a in case.inputs]
    outputs = [_Guarded(t.bytes, poison) for t in workload.output_tensors]
    packed = _Guarded(kernel.packed_bytes, poison)
    workspace = _Guarded(entry.workspace_bytes, poison)
    arguments = [g.address for g in (*inputs, *outputs)]
    if entry.pack(arguments, packed.address) != 0:
        raise DisagreementError("packing failed")
    made = packed.bytes
    for n in kernel.constants:
        if inputs[n].bytes != case.inputs[n].tobytes():
            raise DisagreementError("packing changed an input")
        inputs[n].wipe()
    if entry.call(*entry.pointers(arguments, packed.address, workspace.address)) != 0:
        raise DisagreementError("the prepacked kernel failed")
    if packed.bytes != made:
        raise DisagreementError("the kernel changed what was packed")
    if not all(g.intact for g in (*inputs, *outputs, packed, workspace)):
        raise DisagreementError("the kernel wrote outside its buffers")
    return [
        np.frombuffer(g.bytes, t.dtype.numpy).reshape(t.shape)
        for g, t in zip(outputs, workload.output_tensors, strict=True)
    ]


class _Guarded:
    """Bytes at an address that is a multiple of 64, with poisoned margins on both sides."""

    def __init__(self, size: int, poison: int, content: Array | None = None) -> None:
        self.size = size
        self.poison = poison
        self._memory = np.full(size + 2 * _MARGIN + 64, poison, np.uint8)
        self._start = _MARGIN + -(self._memory.ctypes.data + _MARGIN) % 64
        if content is not None:
            self._memory[self._start : self._start + size] = np.frombuffer(
                np.ascontiguousarray(content).tobytes(), np.uint8
            )

    @property
    def address(self) -> int:
        return int(self._memory.ctypes.data) + self._start

    @property
    def bytes(self) -> bytes:
        return self._memory[self._start : self._start + self.size].tobytes()

    def wipe(self) -> None:
        self._memory[self._start : self._start + self.size] = self.poison

    @property
    def intact(self) -> bool:
        before, after = self._memory[: self._start], self._memory[self._start + self.size :]
        return bool((before == self.poison).all() and (after == self.poison).all())


def shrunk(pair: Pair) -> Pair:
    """The same failure with fewer steps, for reports: steps are dropped while it still fails."""
    steps = list(pair.trace.steps)
    n = 0
    while n < len(steps):
        fewer = replace(pair, trace=Trace(tuple(steps[:n] + steps[n + 1 :])))
        if _fails(fewer):
            del steps[n]
        else:
            n += 1
    return replace(pair, trace=Trace(tuple(steps)))


def _fails(pair: Pair) -> bool:
    try:
        check_pair(pair)
    except ScheduleError:
        return False
    except Exception:  # noqa: BLE001 (any failure is the one to make smaller)
        return True
    return False
