"""From a loop nest to LLVM IR: it sees loops, buffers and vectors, and nothing else.

Serial loops become loops, unrolled ones copies, vectorised ones lanes; a parallel loop becomes a
function of its own that OpenMP's runtime calls on every thread with a share of the iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import assert_never

from schedules.algebra.affine import Affine, Cond, Ge0, Interval, interval, var
from schedules.algebra.scalar import Binary, BinaryOp, Reducer, Scalar, Select, loads
from schedules.dtypes import DType
from schedules.nest.loop_ir import (
    Allocate,
    Buffer,
    For,
    LoopKind,
    Nest,
    Prefetch,
    Scope,
    Stmt,
    Store,
    Update,
    leaves,
    loops,
)

from .indices import Indices, VectorAxis
from .memory import Array, Memory, Registers
from .module import ModuleText
from .scalars import Scalars, is_zero
from .shifted import LINE_BYTES, Shift, shift_of
from .storage import ALIGN_BYTES, Storage
from .text import FunctionText
from .values import Val, literal, scalar_type


class NestWriter:
    """Writes the kernel function and, through copies of itself, its parallel regions."""

    def __init__(
        self,
        nest: Nest,
        module: ModuleText,
        symbol: str,
        storage: Storage,
    ) -> None:
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
        self.memory = Memory(self.text, self.indices, module)
        self.scalars = Scalars(self.text, self.indices, self.memory, module)

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
        """Add the function `symbol` for other functions of the module: nothing is checked, and
        what it takes is `parameters`."""
        self._place_arguments()
        self.statements(self.nest.body)
        self._finish_streams()
        self.text.add("  ret void")
        self.module.functions.append(
            f"define internal void @{self.symbol}({', '.join(self.parameters())}) noinline nounwind"
            f" {{\n{self.text.body()}\n}}"
        )

    def parameters(self) -> list[str]:
        """What a part of the kernel is given: arguments, packed memory if there is, workspace."""
        return [*self._argument_parameters(), "ptr noalias %workspace"]

    def _finish_streams(self, always: bool = False) -> None:
        """A fence orders stores past the caches with others: one for each thread's share."""
        if always or self.module.uses_streams:
            fence = self.module.intrinsic(self.module.instructions.stream_fence, "void", ())
            self.text.add(f"  call void {fence}()")

    def _argument_parameters(self) -> list[str]:
        inputs = {t.name for t in self.nest.inputs}
        arguments = [
            f"ptr noalias {'readonly ' if b.name in inputs else ''}%arg{n}"
            for n, b in enumerate(self.nest.argument_buffers)
        ]
        return arguments if self.storage.ahead is None else [*arguments, "ptr noalias %packed"]

    def _argument_pointers(self) -> list[str]:
        """The registers of the parameters, the workspace's excepted."""
        pointers = [f"%arg{n}" for n in range(len(self.nest.argument_buffers))]
        return pointers if self.storage.ahead is None else [*pointers, "%packed"]

    def _place_arguments(self) -> None:
        for n, buffer in enumerate(self.nest.argument_buffers):
            self.memory.places[buffer.name] = Array(buffer, f"%arg{n}", buffer.dtype.bytes)
        for buffer, offset in self.storage.ahead or ():
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
                case Store() | Update():
                    self._leaf(stmt)
                case Prefetch():
                    self._prefetch(stmt)
                case _:
                    assert_never(stmt)

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        lanes = self.register_lanes.get(buffer.name)
        if buffer.scope is Scope.REGISTER and buffer.name not in self.in_memory:
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
        """A loop, entered only where those of its bounds hold that do not speak of it."""
        condition: Val | None = None
        for bound in loop.bounds:
            if loop.var in bound.index.vars():
                continue
            known = self.indices.cond(type(bound)(self.indices.resolve(bound.index)), None)
            if known is False:
                return
            if isinstance(known, Val):
                condition = known if condition is None else self.scalars.both(condition, known)
        with self._where(condition, written(loop.body)):
            self._iterations(loop)

    @contextmanager
    def _where(self, condition: Val | None, writes: frozenset[str]) -> Iterator[None]:
        """What is written meanwhile runs only where `condition` holds; None is always. `writes`
        are the buffers it writes."""
        if condition is None:
            yield
            return
        text = self.text
        then, done = text.label("then"), text.label("done")
        text.open_level(writes)
        text.add(f"  br i1 {condition.name}, label %{then}, label %{done}")
        text.start_block(then)
        yield
        text.add(f"  br label %{done}")
        text.close_level()
        text.start_block(done)

    def _iterations(self, loop: For) -> None:
        if any(loop is stmt for stmt in self.nest.body):
            shift = shift_of(self.nest, loop)
            if shift is not None:
                self._shifted(loop, shift)
                return
        match loop.kind:
            case LoopKind.UNROLLED:
                registers = self.module.target.vector_registers
                with self.text.sequence(written(loop.body), registers):
                    for i in range(loop.extent):
                        self.indices.fix(loop.var, i)
                        self.statements(loop.body)
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
            case _:
                assert_never(loop.kind)

    def _trips(self, loop: For) -> Val:
        """How many iterations a serial loop has: its extent, or fewer where its bounds say so."""
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
        """The number of values 0, 1, ... of `name` for which `bound` holds, perhaps negative."""
        assert isinstance(bound, Ge0)
        step = -bound.index.coefficient(name)
        rest = self.indices.resolve(bound.index + var(name) * step)
        # floor(rest / step) + 1, with a shift that makes the numerator non-negative.
        lowest = interval(rest, self.indices.ranges).lo
        shift = 0 if lowest >= 0 else -(lowest // step)
        numerator = self.indices.scalar(rest + shift * step)
        if step == 1:
            quotient = numerator.name
        else:
            quotient = self.text.assign(f"udiv i64 {numerator.name}, {step}", "n")
        return self.text.assign(f"add i64 {quotient}, {1 - shift}", "n")

    def _serial(self, loop: For, start: str, stop: Val) -> None:
        """A loop from `start` to below `stop`; entered without a test if it must run."""
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
        self.statements(loop.body)
        phi.append(f"  {counter} = phi i64 [ {start}, %{before} ], [ {following}, %{text.block} ]")
        text.add(f"  {following} = add nuw nsw i64 {counter}, 1")
        again = text.assign(f"icmp slt i64 {following}, {stop.name}", "c")
        text.add(f"  br i1 {again}, label %{head}, label %{done}")
        self.indices.unbind(loop.var)
        text.close_level()
        text.start_block(done)

    def _leaf(self, leaf: Store | Update) -> None:
        divisible = isinstance(leaf, Store) or not _is_sum_of_products(leaf)
        reads = frozenset(load.tensor for load in loads(leaf.value))
        self.text.begin_statement(reads if divisible else None)
        mask: Val | None = None
        scalar_guard: Val | None = None
        for guard in leaf.guards:
            index = self.indices.resolve(guard.index)
            known = self.indices.cond(type(guard)(index), self.scalars.axis)
            if known is False:
                return
            if isinstance(known, Val):
                if known.lanes > 1:
                    mask = known if mask is None else self.scalars.both(mask, known)
                else:
                    scalar_guard = (
                        known if scalar_guard is None else self.scalars.both(scalar_guard, known)
                    )
        with self._where(scalar_guard, frozenset({leaf.buffer})):
            self._write(leaf, mask)

    def _write(self, leaf: Store | Update, mask: Val | None) -> None:
        axis = self.scalars.axis
        index = leaf.index
        if isinstance(leaf, Store):
            value = self.scalars.value(leaf.value, mask)
            if axis is not None:
                value = self.scalars.broadcast(value, axis.lanes)
            streamed = leaf.buffer in self.streamed
            self.memory.store(leaf.buffer, index, value, axis, mask, streamed)
            return
        across = axis is not None and all(axis.var not in i.vars() for i in index)
        if across:
            value = self._across_lanes(leaf, mask)
            axis, mask = None, None
            self.scalars.axis, saved = None, self.scalars.axis
            old = self._old(leaf, index, axis, mask)
            value = self.scalars.binary(leaf.reducer.op, old, value)
            self.memory.store(leaf.buffer, index, value, None, None)
            self.scalars.axis = saved
            return
        value = self._combined(leaf, mask, lambda: self._old(leaf, index, axis, mask))
        if axis is not None:
            value = self.scalars.broadcast(value, axis.lanes)
        self.memory.store(leaf.buffer, index, value, axis, mask)

    def _across_lanes(self, leaf: Update, mask: Val | None) -> Val:
        """All lanes of the leaf's value combined; lanes outside the mask count as the identity."""
        axis = self.scalars.axis
        assert axis is not None
        value = self.scalars.broadcast(self.scalars.value(leaf.value, mask), axis.lanes)
        if mask is not None:
            identity = literal(leaf.reducer.identity(value.dtype), value.dtype, axis.lanes)
            value = self.scalars.select(mask, value, identity)
        return self.scalars.horizontal(leaf.reducer.op, value)

    def _old(
        self, leaf: Update, index: tuple[Affine, ...], axis: VectorAxis | None, mask: Val | None
    ) -> Val:
        """What the leaf combines with: the identity if this is the element's first update."""
        dtype = leaf.value.dtype
        identity = literal(leaf.reducer.identity(dtype), dtype)
        first: Val | None = None
        for cond in leaf.first or ():
            known = self.indices.cond(type(cond)(self.indices.resolve(cond.index)), axis)
            if known is False:
                first = None
                break
            if isinstance(known, Val):
                first = known if first is None else self.scalars.both(first, known)
        else:
            if leaf.first is not None and first is None:
                return identity
        old = self.memory.load(leaf.buffer, index, dtype, axis, mask)
        return old if first is None else self.scalars.select(first, identity, old)

    def _combined(self, leaf: Update, mask: Val | None, old: Callable[[], Val]) -> Val:
        """What the leaf writes; it reads `old` after its value unless it is made in one step."""
        value = leaf.value
        if _is_sum_of_products(leaf):
            if not isinstance(value, Select):
                return self._multiply_add(value, old(), mask)
            before = old()
            return self.scalars.chosen(
                value, mask, lambda inner, where: self._multiply_add(inner, before, where), before
            )
        result = self.scalars.value(value, mask)
        return self.scalars.binary(leaf.reducer.op, old(), result)

    def _multiply_add(self, value: Scalar, old: Val, mask: Val | None) -> Val:
        assert isinstance(value, Binary)
        a, b = self.scalars.value(value.a, mask), self.scalars.value(value.b, mask)
        return self.scalars.multiply_add(a, b, old)

    def _prefetch(self, leaf: Prefetch) -> None:
        if not isinstance(self.memory.places[leaf.buffer], Array):
            return
        axis = self.scalars.axis
        first_lane = {} if axis is None else {axis.var: Affine((), 0)}
        index = tuple(i.substitute(first_lane) for i in leaf.index)
        pointer = self.memory.pointer(leaf.buffer, index)
        function = self.module.intrinsic("llvm.prefetch.p0", "void", ("ptr", "i32", "i32", "i32"))
        kept = 2 if leaf.far else 3  # LLVM's locality: from the second cache on, or everywhere
        self.text.add(
            f"  call void {function}(ptr {pointer}, i32 {int(leaf.for_write)}, i32 {kept}, i32 1)"
        )

    def _shifted(self, loop: For, shift: Shift) -> None:
        """A loop on pointers that begin at a line of its output, then both its ends as they are."""
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
            self._write_region(loop, name, [], fenced=False)  # the kernel's own end has a fence
            self._call_region(name, given, "0", trips)
        with self._where(Val(moved, DType.BOOL), written(loop.body)):
            for first in (loop.extent - 1, 0):
                self._call_region(name, pointers, str(first), str(first + 1))

    def _call_region(self, name: str, pointers: list[str], start: str, stop: str) -> None:
        """Iterations `start` to `stop` of a region without private memory, on this thread."""
        given = ", ".join(f"ptr {p}" for p in (*pointers, "%workspace", "%workspace"))
        self.text.add(f"  call void @{name}({given}, i64 {start}, i64 {stop})")
        self.memory.forget_all()

    def _parallel(self, loop: For, pointers: list[str] | None = None, trips: str = "") -> str:
        """Call the runtime with a record of everything the region's threads need; the region's
        name. `pointers` are the arguments' if not those of the kernel, `trips` is how many
        iterations there are if it is not the loop's extent."""
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
            self._finish_streams(always=True)  # this thread's stores are done before others begin
        threads = self.module.target.threads
        run = self.module.intrinsic("GOMP_parallel", "void", ("ptr", "ptr", "i32", "i32"))
        self.text.add(f"  call void {run}(ptr @{name}_thread, ptr {record}, i32 {threads}, i32 0)")
        self.module.uses_openmp = True
        self.memory.forget_all()
        self._write_region(loop, name, [v for v, _ in outer])
        self._write_thread(loop, name, len(outer), counted=bool(trips))
        return name

    def _write_region(self, loop: For, name: str, outer: list[str], *, fenced: bool = True) -> None:
        """`name`: the iterations `%start` to `%stop` of the loop, for one thread."""
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

    def _write_thread(self, loop: For, name: str, outer: int, *, counted: bool) -> None:
        """`name_thread`: unpack the record and run this thread's share of the iterations, whose
        number is the last value of the record if they are `counted`, else the loop's extent.

        The share follows from the number of threads the runtime really gives, so a caller that
        is nested or limited still gets the whole output.
        """
        text = FunctionText()
        arguments = len(self._argument_pointers())
        call: list[str] = []
        for n in range(arguments + 1 + outer):
            type_ = "ptr" if n <= arguments else "i64"
            slot = text.assign(f"getelementptr i64, ptr %record, i64 {n}", "p")
            value = text.assign(f"load {type_}, ptr {slot}, align 8", "a")
            call.append(f"{type_} {value}")
            if n == arguments:
                workspace = value
        trips = str(loop.extent)
        if counted:
            slot = text.assign(f"getelementptr i64, ptr %record, i64 {arguments + 1 + outer}", "p")
            trips = text.assign(f"load i64, ptr {slot}, align 8", "a")
        for function in ("omp_get_thread_num", "omp_get_num_threads"):
            self.module.intrinsic(function, "i32", ())
        me = text.assign("call i32 @omp_get_thread_num()", "t")
        count = text.assign("call i32 @omp_get_num_threads()", "t")
        me, count = (text.assign(f"sext i32 {x} to i64", "t") for x in (me, count))
        shared, private = self.workspace.shared_bytes, self.workspace.private_bytes
        own = text.assign(f"mul i64 {me}, {private}", "t")
        own = text.assign(f"add i64 {own}, {shared}", "t")
        mine = text.assign(f"getelementptr i8, ptr {workspace}, i64 {own}", "p")
        call.insert(arguments + 1, f"ptr {mine}")
        for position in (me, text.assign(f"add i64 {me}, 1", "t")):
            scaled = text.assign(f"mul i64 {position}, {trips}", "t")
            call.append(f"i64 {text.assign(f'udiv i64 {scaled}, {count}', 't')}")
        text.add(f"  call void @{name}({', '.join(call)})")
        text.add("  ret void")
        self.module.functions.append(
            f"define internal void @{name}_thread(ptr %record) nounwind {{\n{text.body()}\n}}"
        )


def written(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """Every buffer that is written somewhere in `stmts`."""
    return frozenset(s.buffer for s in leaves(stmts) if isinstance(s, Store | Update))


def written_alone(stmts: tuple[Stmt, ...]) -> frozenset[str]:
    """Buffers that one thread writes outside of parallel loops."""
    found: set[str] = set()
    for stmt in stmts:
        match stmt:
            case For() | Allocate():
                if not (isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL):
                    found |= written_alone(stmt.body)
            case Store() | Update():
                found.add(stmt.buffer)
            case Prefetch():
                pass
            case _:
                assert_never(stmt)
    return frozenset(found)


def refuse_bad_memory(text: FunctionText, pointer: str) -> None:
    """Return 1 where the memory behind `pointer` is missing or not aligned."""
    address = text.assign(f"ptrtoint ptr {pointer} to i64", "w")
    low = text.assign(f"and i64 {address}, {ALIGN_BYTES - 1}", "w")
    missing = text.assign(f"icmp eq i64 {address}, 0", "w")
    crooked = text.assign(f"icmp ne i64 {low}, 0", "w")
    bad = text.assign(f"or i1 {missing}, {crooked}", "w")
    refused, accepted = f"refused.{pointer[1:]}", f"accepted.{pointer[1:]}"
    text.add(f"  br i1 {bad}, label %{refused}, label %{accepted}")
    text.start_block(refused)
    text.add("  ret i32 1")
    text.start_block(accepted)


def size_function(name: str, size: int) -> str:
    """A function without arguments that returns `size`."""
    return f"define i64 @{name}() nounwind {{\n  ret i64 {size}\n}}"


def _is_sum_of_products(leaf: Update) -> bool:
    """Whether multiplying and adding is one step."""
    value = leaf.value
    if leaf.reducer is not Reducer.SUM or not value.dtype.is_float:
        return False
    if isinstance(value, Select):
        return _multiplies(value.on_true) and is_zero(value.on_false)
    return _multiplies(value)


def _multiplies(value: Scalar) -> bool:
    return isinstance(value, Binary) and value.op is BinaryOp.MUL
