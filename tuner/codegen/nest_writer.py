"""Translation of a loop nest to LLVM IR.

Serial loops become loops. Unrolled loops become copies of their body. Iterations of vectorised
loops become vector lanes. A parallel loop becomes a function, which every thread of the OpenMP
runtime calls for a range of iterations. Of a loop whose iterations data select, one is executed.
"""

from __future__ import annotations

from typing import assert_never

from tilewright.schedules.algebra.affine import Interval, interval, var
from tilewright.schedules.algebra.comparisons import Cond, Ge0
from tilewright.schedules.dtypes import DType
from tilewright.schedules.lowering.storage import ALIGN_BYTES, Storage
from tilewright.schedules.nest.finding import buffers_in
from tilewright.schedules.nest.instructions import call_of
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    RunByInstruction,
    Stmt,
    StoreElement,
    Update,
    leaves,
    loops,
)
from tilewright.schedules.nest.selected import SelectedIteration, selected_iteration

from .addresses import Array
from .indices import Indices, VectorAxis
from .leaves import LeafWriter, keeps_an_extreme
from .memory import BufferAddresses
from .module import ModuleText, refuse_bad_memory, size_function
from .registers import Registers
from .scalars import Scalars
from .shares import thread_function
from .shifted import LINE_BYTES, Shift, shift_of
from .text import FunctionText
from .unswitched import Body, Branch, unswitched
from .values import Val, literal, scalar_type


class NestWriter:
    """A writer of one function: a kernel, a part of a kernel, or a parallel region."""

    def __init__(self, nest: Nest, module: ModuleText, symbol: str, storage: Storage) -> None:
        self.nest = nest
        self.module = module
        self.symbol = symbol
        self.storage = storage
        self.workspace = storage.workspace
        self.register_lanes = storage.lanes
        self.in_memory = storage.in_memory
        self.streamed = frozenset(nest.streamed if module.instructions.streams else ())
        self.regions = 0
        self.text = FunctionText()
        ranges = {loop.var: Interval(0, loop.extent - 1) for loop in loops(nest.body)}
        unrolled = frozenset(
            loop.var
            for loop in loops(nest.body)
            if loop.kind is LoopKind.UNROLLED
            or (loop.kind is LoopKind.VECTORIZED and loop.extent == 1)
        )
        self.indices = Indices(self.text, ranges, unrolled)
        self.memory = BufferAddresses(self.text, self.indices, module)
        self.scalars = Scalars(self.text, self.indices, self.memory, module)
        compared = frozenset(one.buffer for one in leaves(nest.body) if keeps_an_extreme(one))
        self.leaves = LeafWriter(
            self.text, self.indices, self.memory, self.scalars, module, self.streamed, compared
        )

    def write_kernel(self) -> None:
        """Add the function `symbol` to the module."""
        self._place_arguments()
        size = self.workspace.total_bytes(self.module.target.threads)
        if size:
            refuse_bad_memory(self.text, "%workspace")
        self.statements(self.nest.body)
        self._finish_streams()
        self.text.add("  ret i32 0")
        parameters = ", ".join([*self._argument_parameters(), "ptr noalias %workspace"])
        self.module.functions.append(
            f"define i32 @{self.symbol}({parameters}) nounwind {{\n{self.text.body()}\n}}"
        )

        self.module.functions.append(size_function(f"{self.symbol}_workspace_bytes", size))

    def write_part(self) -> None:
        """Add the internal function `symbol` with the parameters `parameters()`. Unlike
        `write_kernel`, it writes no checks of pointers."""
        self._place_arguments()
        self.statements(self.nest.body)
        self._finish_streams()
        self.text.add("  ret void")
        self.module.functions.append(
            f"define internal void @{self.symbol}({', '.join(self.parameters())}) noinline nounwind"
            f" {{\n{self.text.body()}\n}}"
        )

    def parameters(self) -> list[str]:
        """Return the parameters of an internal function: arguments, packed memory if the nest uses
        it, workspace."""
        return [*self._argument_parameters(), "ptr noalias %workspace"]

    def _finish_streams(self, always: bool = False) -> None:
        """Write a fence if the module has non-temporal stores or if `always` is set."""
        if always or self.module.uses_streams:
            fence = self.module.intrinsic(self.module.instructions.stream_fence, "void", ())
            self.text.add(f"  call void {fence}()")

    def _argument_parameters(self) -> list[str]:
        inputs = {t.name for t in self.nest.inputs}
        arguments = [
            f"ptr noalias {'readonly ' if b.name in inputs else ''}%arg{n}"
            for n, b in enumerate(self.nest.argument_buffers)
        ]
        return arguments if self.storage.prepacked is None else [*arguments, "ptr noalias %packed"]

    def _argument_pointers(self) -> list[str]:
        """Return the registers of the parameters except the workspace."""
        pointers = [f"%arg{n}" for n in range(len(self.nest.argument_buffers))]
        return pointers if self.storage.prepacked is None else [*pointers, "%packed"]

    def _place_arguments(self) -> None:
        for n, buffer in enumerate(self.nest.argument_buffers):
            self.memory.places[buffer.name] = Array(buffer, f"%arg{n}", buffer.dtype.bytes)
        for buffer, offset in self.storage.prepacked or ():
            base = "%packed"
            if offset:
                base = self.text.assign(f"getelementptr i8, ptr %packed, i64 {offset}", "w", 0)
            self.memory.places[buffer.name] = Array(buffer, base, ALIGN_BYTES)

    def statements(self, stmts: tuple[Stmt, ...]) -> None:
        for stmt in stmts:
            match stmt:
                case For():
                    self._loop(stmt)
                case Allocate():
                    self._allocate(stmt)
                case StoreElement() | Update():
                    self.leaves.leaf(stmt)
                case PrefetchHint():
                    self.leaves.prefetch(stmt)
                case _:
                    assert_never(stmt)

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        lanes = self.register_lanes.get(buffer.name)
        if buffer.scope is BufferScope.REGISTER and buffer.name not in self.in_memory:
            if lanes is None:
                base = self.text.alloca(f"[{buffer.bytes} x i8]", ALIGN_BYTES)
                self.memory.places[buffer.name] = Array(buffer, base, ALIGN_BYTES)
            else:
                self.memory.places[buffer.name] = Registers(buffer, lanes)
        elif buffer.name not in self.memory.places:
            self._place_in_workspace(buffer)
        self.statements(stmt.body)

    def _place_in_workspace(self, buffer: Buffer) -> None:
        private = buffer.name in self.workspace.private
        offsets = self.workspace.private if private else self.workspace.shared
        base = "%private" if private else "%workspace"
        offset = offsets[buffer.name]
        if offset:
            base = self.text.assign(f"getelementptr i8, ptr {base}, i64 {offset}", "w", 0)
        self.memory.places[buffer.name] = Array(buffer, base, ALIGN_BYTES)

    def _loop(self, loop: For) -> None:
        """Write a loop. Bounds of the loop that do not depend on its variable are tested before
        it."""
        condition: Val | None = None
        for bound in loop.bounds:
            if loop.var in bound.index.vars():
                continue
            known = self.indices.cond(type(bound)(self.indices.resolve(bound.index)), None)
            if known is False:
                return
            if isinstance(known, Val):
                condition = known if condition is None else self.scalars.both(condition, known)
        if condition is None:
            self._iterations(loop)
            return
        with self.text.only_where(condition, written(loop.body)):
            self._iterations(loop)

    def _iterations(self, loop: For) -> None:
        if any(loop is stmt for stmt in self.nest.body):
            shift = shift_of(self.nest, loop)
            if shift is not None:
                self._shifted(loop, shift)
                return
        match loop.kind:
            case LoopKind.UNROLLED if self.text.in_sequence:
                self._copies(loop)
            case LoopKind.UNROLLED:
                registers = self.module.target.vector_registers
                with self.text.sequence(written(loop.body), registers):
                    self._copies(loop)
            case LoopKind.VECTORIZED if loop.extent == 1:
                self.indices.fix(loop.var, 0)
                self.statements(loop.body)
            case LoopKind.VECTORIZED:
                self.scalars.axis = VectorAxis(loop.var, loop.extent)
                self.statements(loop.body)
                self.scalars.axis = None
            case LoopKind.PARALLEL:
                self._parallel(loop)
            case LoopKind.SERIAL:
                self._serial(loop, literal(0, DType.I64).name, self._trips(loop))
            case LoopKind.SELECTED:
                self._selected(loop)
            case RunByInstruction(name):
                call = call_of(loop, name, buffers_in(self.nest), self.indices.ranges)
                assert not isinstance(call, str), f"{loop.var} is no {name}: {call}"
                self.leaves.instruction(call)
            case _:
                assert_never(loop.kind)

    def _copies(self, loop: For) -> None:
        """Write the body of an unrolled loop once for each iteration."""
        for i in range(loop.extent):
            self.indices.fix(loop.var, i)
            self.statements(loop.body)

    def _trips(self, loop: For) -> Val:
        """Return the trip count of a serial loop: its extent, or less if its bounds limit it."""
        bounds = [bound for bound in loop.bounds if loop.var in bound.index.vars()]
        if not bounds:
            return literal(loop.extent, DType.I64)
        trips = literal(loop.extent, DType.I64).name
        for bound in bounds:
            limit = self._limit(loop.var, bound)
            trips = self.text.assign(f"call i64 @llvm.smin.i64(i64 {trips}, i64 {limit})", "n")
        self.module.intrinsic("llvm.smin.i64", "i64", ("i64", "i64"))
        return Val(trips, DType.I64)

    def _limit(self, name: str, bound: Cond) -> str:
        """Return how many of the values 0, 1, ... of `name` satisfy `bound`. The number may be
        negative."""
        assert isinstance(bound, Ge0)
        step = -bound.index.coefficient(name)
        rest = self.indices.resolve(bound.index + var(name) * step)
        # The value is floor(rest / step) + 1, with a shift that makes the numerator non-negative.
        lowest = interval(rest, self.indices.ranges).lo
        shift = 0 if lowest >= 0 else -(lowest // step)
        numerator = self.indices.scalar(rest + shift * step)
        if step == 1:
            quotient = numerator.name
        else:
            quotient = self.text.assign(f"udiv i64 {numerator.name}, {step}", "n")
        return self.text.assign(f"add i64 {quotient}, {1 - shift}", "n")

    def _serial(self, loop: For, start: str, stop: Val) -> None:
        """Write a loop from `start` to `stop` - 1. A constant `stop` is above `start`, so no test
        is needed before the first iteration."""
        text = self.text
        certain = not stop.name.startswith("%")
        head, done = text.label("loop"), text.label("done")
        text.open_level(written(loop.body))
        if certain:
            text.add(f"  br label %{head}")
        else:
            go = text.assign(f"icmp slt i64 {start}, {stop.name}", "c")
            text.add(f"  br i1 {go}, label %{head}, label %{done}")
        before = text.block
        text.start_block(head)
        counter, following = text.new("i"), text.new("i")
        phi: list[str] = []
        text.here.append(phi)  # type: ignore[arg-type]
        self.indices.bind(loop.var, counter, text.depth)
        self.leaves.serial.append(loop.var)
        self._versions(loop, counter, unswitched(loop.body, self.indices))
        self.leaves.serial.pop()
        phi.append(f"  {counter} = phi i64 [ {start}, %{before} ], [ {following}, %{text.block} ]")
        text.add(f"  {following} = add nuw nsw i64 {counter}, 1")
        again = text.assign(f"icmp slt i64 {following}, {stop.name}", "c")
        text.add(f"  br i1 {again}, label %{head}, label %{done}")
        self.indices.unbind(loop.var)
        text.close_level()
        text.start_block(done)

    def _selected(self, loop: For) -> None:
        """Write the iteration of a loop that data select, under the condition that there is such an
        iteration."""
        selected = selected_iteration(loop)
        assert selected is not None, f"data select no iteration of {loop.var}"
        if self.text.in_sequence:
            self.text.begin_statement(None)
        holds: Val | None = None
        for guard in selected.guards:
            known = self.indices.cond(type(guard)(self.indices.resolve(guard.index)), None)
            if known is False:
                return
            if isinstance(known, Val):
                holds = known if holds is None else self.scalars.both(holds, known)
        if holds is None:
            self._iteration(loop, selected)
            return
        with self.text.only_where(holds, written(loop.body)):
            self._iteration(loop, selected)

    def _iteration(self, loop: For, selected: SelectedIteration) -> None:
        """Write the selected iteration. The guards of its integer hold."""
        text = self.text
        text.forget_computed()
        place = self.scalars.cast(self.scalars.value(selected.place), DType.I64)
        # A negative integer is a large one without a sign.
        inside = text.assign(f"icmp ult {place.typed}, {loop.extent}", "c")
        with text.only_where(Val(inside, DType.BOOL), written(loop.body)):
            self.indices.bind(loop.var, place.name, text.depth)
            self.statements(selected.body)
            self.indices.unbind(loop.var)

    def _versions(self, loop: For, counter: str, body: Body) -> None:
        """Write the body of a serial loop, with branches between its versions."""
        if not isinstance(body, Branch):
            self.statements(body)
            return
        holds: Val | None = None
        for test in body.tests:
            one = self.indices.cond(test, None)
            assert isinstance(one, Val), "a proved test is none"
            holds = one if holds is None else self.scalars.both(holds, one)
        assert holds is not None
        fails = Val(self.text.assign(f"xor i1 {holds.name}, true", "c"), DType.BOOL)
        level = self.text.depth
        for condition, version in ((holds, body.holds), (fails, body.fails)):
            with self.text.only_where(condition, written(loop.body)):
                # Masks are computed in the branch that uses them.
                self.indices.bind(loop.var, counter, self.text.depth)
                self._versions(loop, counter, version)
        self.indices.bind(loop.var, counter, level)

    def _shifted(self, loop: For, shift: Shift) -> None:
        """Write a shifted loop (see `shifted`).

        The loop runs on pointers that begin at a cache line. Then its last and first iteration run
        on the original pointers.
        """
        text = self.text
        address = text.assign(f"ptrtoint ptr %arg{shift.output} to i64", "w")
        behind = text.assign(f"sub i64 0, {address}", "w")
        gap = text.assign(f"and i64 {behind}, {LINE_BYTES - 1}", "w")
        size = self.nest.argument_buffers[shift.output].dtype.bytes
        elements = text.assign(f"udiv i64 {gap}, {size}", "w")
        moved = text.assign(f"icmp ne i64 {elements}, 0", "c")
        fewer = text.assign(f"zext i1 {moved} to i64", "w")
        trips = text.assign(f"sub i64 {loop.extent}, {fewer}", "w")
        pointers = self._argument_pointers()
        given = list(pointers)
        for n in sorted(shift.arguments):
            each = scalar_type(self.nest.argument_buffers[n].dtype)
            step = f"getelementptr {each}, ptr {pointers[n]}, i64 {elements}"
            given[n] = text.assign(step, "p")
        if loop.kind is LoopKind.PARALLEL:
            name = self._parallel(loop, given, trips)
        else:
            self.regions += 1
            name = f"{self.symbol}_flat{self.regions}"
            self._write_region(loop, name, [], fenced=False)  # the kernel ends with a fence
            self._call_region(name, given, "0", trips)
        with self.text.only_where(Val(moved, DType.BOOL), written(loop.body)):
            for first in (loop.extent - 1, 0):
                self._call_region(name, pointers, str(first), str(first + 1))

    def _call_region(self, name: str, pointers: list[str], start: str, stop: str) -> None:
        """Call a region without private memory for iterations `start` to `stop`, on this thread."""
        given = ", ".join(f"ptr {p}" for p in (*pointers, "%workspace", "%workspace"))
        self.text.add(f"  call void @{name}({given}, i64 {start}, i64 {stop})")
        self.memory.forget_all()

    def _parallel(self, loop: For, pointers: list[str] | None = None, trips: str = "") -> str:
        """Write a parallel region and its call, and return the name of the region.

        The call passes a record of values to the threads. `pointers` replace the arguments of the
        kernel, and `trips` replaces the extent of the loop, if they are not empty.
        """
        self.regions += 1
        name = f"{self.symbol}_region{self.regions}"
        outer = sorted(self.indices.bound().items(), key=lambda item: item[1][1])
        arguments = self._argument_pointers() if pointers is None else pointers
        values = [("ptr", p) for p in (*arguments, "%workspace")]
        values += [("i64", register) for _, (register, _) in outer]
        values += [("i64", trips)] if trips else []
        record = self.text.alloca(f"[{len(values)} x i64]", 8)
        for n, (type_, value) in enumerate(values):
            slot = self.text.assign(f"getelementptr i64, ptr {record}, i64 {n}", "p")
            self.text.add(f"  store {type_} {value}, ptr {slot}, align 8")
        if self.streamed & written_alone(self.nest.body):
            # The stores of this thread must complete before other threads begin.
            self._finish_streams(always=True)
        threads = self.module.target.threads
        run = self.module.intrinsic("GOMP_parallel", "void", ("ptr", "ptr", "i32", "i32"))
        self.text.add(f"  call void {run}(ptr @{name}_thread, ptr {record}, i32 {threads}, i32 0)")
        self.module.uses_openmp = True
        self.memory.forget_all()
        self._write_region(loop, name, [v for v, _ in outer])
        extent = None if trips else loop.extent
        counts = (len(arguments), len(outer), extent)
        self.module.functions.append(thread_function(self.module, self.workspace, name, *counts))
        return name

    def _write_region(self, loop: For, name: str, outer: list[str], *, fenced: bool = True) -> None:
        """Write the function `name`, which one thread calls for iterations `%start` to `%stop` -
        1."""
        inner = NestWriter(self.nest, self.module, name, self.storage)
        inner._place_arguments()
        for buffer_name in self.memory.places:
            place = self.memory.places[buffer_name]
            if isinstance(place, Array) and buffer_name in self.workspace.shared:
                inner._place_in_workspace(place.buffer)
        for n, variable in enumerate(outer):
            inner.indices.bind(variable, f"%outer{n}", 0)
        fixed = self.indices.fixed
        for variable, value in fixed.items():
            inner.indices.fix(variable, value.const)
        inner._serial(loop, "%start", Val("%stop", DType.I64))
        if fenced:
            inner._finish_streams()
        inner.text.add("  ret void")
        parameters = [*self.parameters(), "ptr noalias %private"]
        parameters += [f"i64 %outer{n}" for n in range(len(outer))]
        parameters += ["i64 %start", "i64 %stop"]
        self.module.functions.append(
            f"define internal void @{name}({', '.join(parameters)}) noinline nounwind"
            f" {{\n{inner.text.body()}\n}}"
        )


def written(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """Return all buffers that `stmts` write."""
    return frozenset(s.buffer for s in leaves(stmts) if isinstance(s, StoreElement | Update))


def written_alone(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """Return the buffers that are written outside parallel loops, by a single thread."""
    found: set[str] = set()
    for stmt in stmts:
        match stmt:
            case For() | Allocate():
                if not (isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL):
                    found |= written_alone(stmt.body)
            case StoreElement() | Update():
                found.add(stmt.buffer)
            case PrefetchHint():
                pass
            case _:
                assert_never(stmt)
    return frozenset(found)
