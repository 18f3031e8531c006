"""A schedule space like that of a matrix multiplication, for tests of search and cost model.

It has the shape of the real thing (register tile, blocks, packing, order, parallel grid) and
nothing of its rules: traces are stand-ins that no code generator reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.costmodel.counts.counting import counts
from tilewright.costmodel.counts.table import Counts, with_zeros
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.scalar import Binary, BinaryOp, Load, Reducer
from tilewright.schedules.arrays import BoolArray, IntArray
from tilewright.schedules.dtypes import DType
from tilewright.schedules.leaves import Leaf
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.memory_use import MemoryUse
from tilewright.schedules.nest.loop_ir import Nest
from tilewright.schedules.plan import Access, Level, Outline, Plan, axes_of
from tilewright.schedules.primitives import Parallel, Primitive, Split, Unroll, Vectorize
from tilewright.schedules.sketches.writer import TraceWriter
from tilewright.schedules.space import Knob, ScheduleSpace, Sketch, SpacePart
from tilewright.schedules.target import Cache, Probes, Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Axis, Reduction, Stage, Tensor
from tilewright.schedules.workload.workload import Workload


def synthetic_target(threads: int = 1, vector_bits: int = 256) -> Target:
    """A small server core, fully probed."""
    peak = 2.0 * 2 * (vector_bits // 32) * 3.0
    return Target(
        triple="x86_64-unknown-linux-gnu",
        cpu="synthetic",
        features=("avx2", "fma"),
        vector_bits=vector_bits,
        vector_registers=16 if vector_bits < 512 else 32,
        caches=(Cache(32768, 8), Cache(524288, 8), Cache(16 << 20, 16, shared=True)),
        cores=4,
        threads=threads,
        probes=Probes(
            peak_gflops={"f32": [peak * p for p in (1, 2, 3, 4)]},
            bandwidth_gbs={
                "L1": [190.0, 380.0, 570.0, 760.0],
                "L2": [90.0, 180.0, 270.0, 360.0],
                "L3": [45.0, 90.0, 120.0, 150.0],
                "memory": [20.0, 25.0, 25.0, 25.0],
            },
        ),
    )


def synthetic_workload(m: int, n: int, k: int) -> Workload:
    f32 = DType.F32
    a, b, c = Tensor("A", (m, k), f32), Tensor("B", (k, n), f32), Tensor("C", (m, n), f32)
    i, j, r = var("i"), var("j"), var("k")
    body = Binary(BinaryOp.MUL, Load("A", (i, r), f32), Load("B", (r, j), f32))
    stage = Stage(c, (Axis("i", m), Axis("j", n)), body, Reduction(Reducer.SUM, (Axis("k", k),)))
    return Workload((a, b), (stage,), ("C",), name=f"synthetic:M={m},N={n},K={k}")


@dataclass(frozen=True)
class SyntheticSketch:
    """C[m, n] += A[m, k] * B[k, n] blocked as jc pc ic jr ir k, with an mr x nv register tile."""

    m: int
    n: int
    k: int
    lanes: int = 8
    registers: int = 16
    packed: bool = True
    small: bool = False
    knobs: tuple[Knob, ...] = field(init=False)

    @property
    def workload(self) -> Workload:
        return synthetic_workload(self.m, self.n, self.k)

    def __post_init__(self) -> None:
        blocks = (1, 2, 3, 4, 6, 8, 12, 16)
        knobs = (
            Knob("mr", (1, 2, 3, 4, 5, 6, 8, 12)),
            Knob("nv", (1, 2, 3, 4)),
            Knob("k_blocks", blocks[:4] if self.small else blocks),
            Knob("m_blocks", blocks[:4] if self.small else blocks),
            Knob("n_blocks", blocks[:2] if self.small else blocks),
            Knob("k_unroll", (1, 2, 4)),
            Knob("parallel", (0, 1)),
        )
        object.__setattr__(self, "knobs", knobs)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """As a part of a program: no steps, so every setting is legal."""

    @property
    def name(self) -> str:
        return "packed" if self.packed else "direct"

    @property
    def parts(self) -> tuple[SpacePart, ...]:
        return (self,)

    @property
    def equivalence_classes(self) -> tuple[tuple[int, ...], ...]:
        return ((0,),)

    def single_part(self, number: int) -> Sketch:
        return self

    def split_settings(self, settings: IntArray) -> list[IntArray]:
        return [settings]

    def values(self, settings: IntArray) -> list[IntArray]:
        return [np.asarray(k.values, np.int64)[settings[:, j]] for j, k in enumerate(self.knobs)]

    def feasible(self, settings: IntArray) -> BoolArray:
        mr, nv, qk, qm, qn, ku, _ = self.values(settings)
        fits: BoolArray = (mr * nv + nv + 1 <= self.registers) & (mr * qm <= 2 * self.m)
        return fits & (ku * qk <= self.k) & (nv * self.lanes * qn <= 2 * self.n)

    def plan(self, settings: IntArray) -> Plan:
        """jc pc ic jr ir k i j"""
        mr, nv, qk, qm, qn, _, _ = self.values(settings)
        nr, kc = nv * self.lanes, -(-self.k // qk)
        mc, nc = -(-self.m // qm), -(-self.n // qn)
        accesses = (
            Access("A", 4, ((1, 0, 0), (0, 0, 1))),
            Access("B", 4, ((0, 0, 1), (0, 1, 0))),
            Access("C", 4, ((1, 0, 0), (0, 1, 0)), is_output=True),
        )
        axes = axes_of((("m", self.m), ("n", self.n), ("k", self.k)))
        steps = ((1, nc), (2, kc), (0, mc), (1, nr), (0, mr), (2, 1), (0, 1), (1, 1))
        levels = tuple(Level(axis, step) for axis, step in steps)
        return Plan(Outline(axes, accesses), levels, len(mr), 2 if self.packed else 0)

    @property
    def target(self) -> Target:
        return synthetic_target()

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """None: counted below."""
        return ()

    def memory(self, settings: IntArray) -> MemoryUse:
        return MemoryUse()

    def counts(self, settings: IntArray) -> Counts:
        mr, nv, _, qm, qn, ku, parallel = (v.astype(np.float64) for v in self.values(settings))
        jc, pc, ic, jr, ir, kc, _, nr = (e.astype(np.float64) for e in self.plan(settings).trips.T)
        calls = jc * pc * ic * jr * ir
        zero = np.zeros(len(settings))
        packed = 4.0 * self.k * self.n if self.packed else 0.0
        found = {
            "flops": 2.0 * calls * kc * mr * nr,
            "vector_ops": calls * kc * mr * nv,
            "chained_ops": calls * kc,
            "vector_loads": calls * (kc * (mr + nv) + mr * nv),
            "vector_stores": calls * mr * nv,
            "accumulators": mr * nv,
            "live_registers": mr * nv + nv + 1,
            "inner_trips": kc / ku,
            "inner_entries": calls,
            "code_ops": ku * (mr * nv + mr + nv),
            "packed_bytes": zero + packed,
            "masked_share": (self.n % nr != 0) / (jc * jr),
            "tasks": np.where(parallel > 0, qm * qn, 1.0),
            "regions": parallel,
        }
        return with_zeros(found)

    def trace(self, setting: Sequence[int]) -> Trace:
        mr, nv, qk, qm, qn, ku, parallel = (
            int(k.values[i]) for k, i in zip(self.knobs, setting, strict=True)
        )
        steps: list[Primitive] = [
            Split("i", -(-self.m // qm)),
            Split("i_i", mr),
            Split("j", -(-self.n // qn)),
            Split("j_i", nv * self.lanes),
            Split("j_i_i", self.lanes),
            Split("k", -(-self.k // qk)),
            Split("k_i", ku),
            Vectorize("j_i_i_i"),
            Unroll("i_i_i"),
        ]
        steps += [Parallel("i_o")] if parallel else []
        steps += [Unroll("tile")] if self.packed else []
        return Trace(tuple(steps))

    def lowered(self, setting: Sequence[int]) -> tuple[Trace, Nest]:
        """Not what the steps would make: nothing runs them."""
        return self.trace(setting), plain_nest(self.workload)

    def default(self) -> tuple[int, ...]:
        return (3, 0, 0, 0, 0, 0, 0)


def synthetic_space(
    m: int = 256, n: int = 256, k: int = 256, *, threads: int = 1, small: bool = False
) -> ScheduleSpace:
    """Two sketches; about 1e5 points, or about 4e3 if `small`."""
    target = synthetic_target(threads)
    sketches = tuple(SyntheticSketch(m, n, k, packed=p, small=small) for p in (True, False))
    return ScheduleSpace(synthetic_workload(m, n, k), target, sketches)


def tiny_space() -> ScheduleSpace:
    """A few dozen points: every strategy reaches its end."""
    target = synthetic_target()
    return ScheduleSpace(
        synthetic_workload(2, 8, 1), target, (SyntheticSketch(2, 8, 1, small=True),)
    )


counts.register(SyntheticSketch, lambda sketch, settings: sketch.counts(settings))
