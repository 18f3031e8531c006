"""A compiled kernel as a Python callable on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

from .backend.protocol import Launch, Loaded, LoadError
from .backend.registry import backend_for
from .emit.kernel import CompiledKernel

# Start-up: with an explicit trace and target, the modules that choose them are not loaded.

WORKSPACE_ALIGN = 64

Array = npt.NDArray[np.generic]


class CallError(TilewrightError, TypeError):
    """A kernel was called with arrays that do not match its signature."""


class Kernel:
    """A compiled kernel: `kernel(a, b, out=c)` runs it on arrays and returns `c`, or new arrays.

    Arrays must have the shape and type of the workload's tensors and be C-contiguous; bf16 is
    passed as its bits, in uint16. With several outputs, `out` is a sequence and a tuple is
    returned. Thread-safe: concurrent calls have different workspaces. Every call packs the constant
    inputs; `prepack` packs them once.
    """

    def __init__(self, workload: Workload, compiled: CompiledKernel, loaded: Loaded) -> None:
        self.workload = workload
        self.compiled = compiled
        self._loaded = loaded
        self._workspaces = _Workspaces(compiled.workspace_bytes)

    def __repr__(self) -> str:
        name = self.workload.name or self.workload.key
        return f"<Kernel {name} {signature(self.workload)}>"

    def __call__(
        self, *inputs: Array, out: Array | Sequence[Array] | None = None
    ) -> Array | tuple[Array, ...]:
        """Run the kernel once; raise CallError, with the argument's name, for a wrong type or
        shape."""
        return _run(self._loaded.whole, self.workload, inputs, out, None, self._workspaces)

    def prepack(self, *constants: Array) -> PrepackedKernel:
        """Return the kernel for these values of its constant inputs, in declared order.

        The values are packed now and not read again. Raise CallError if an array does not match, or
        if no input is constant.
        """
        wanted = [self.workload.inputs[n] for n in self.compiled.constants]
        if not wanted:
            raise CallError("has no input marked constant: there is nothing to pack")
        if len(constants) != len(wanted):
            names = ", ".join(t.name for t in wanted)
            raise CallError(f"packs {len(wanted)} inputs ({names}), got {len(constants)}")
        for tensor, array in zip(wanted, constants, strict=True):
            _check(tensor, array, is_output=False)
        launch = self._loaded.timed
        given = dict(zip(self.compiled.constants, constants, strict=True))
        arguments = [
            given[n].ctypes.data if n in given else 0 for n in range(len(self.workload.inputs))
        ]
        packed = _aligned_bytes(launch.packed_bytes)
        status = launch.pack(arguments, packed.ctypes.data)
        _require_success(status)
        return PrepackedKernel(self, launch, packed)


class PrepackedKernel:
    """A kernel without its constant inputs, otherwise like `Kernel`: `prepacked(a, out=c)`.

    Concurrent calls share the packed memory, which no call changes.
    """

    def __init__(self, kernel: Kernel, launch: Launch, packed: npt.NDArray[np.uint8]) -> None:
        self.kernel = kernel
        self._launch = launch
        self._packed = packed
        self._workspaces = _Workspaces(launch.workspace_bytes)

    def __repr__(self) -> str:
        return f"<PrepackedKernel of {self.kernel!r}>"

    def __call__(
        self, *inputs: Array, out: Array | Sequence[Array] | None = None
    ) -> Array | tuple[Array, ...]:
        """Run the kernel once on the inputs that are not constant; raise CallError as `Kernel`
        does."""
        return _run(self._launch, self.kernel.workload, inputs, out, self._packed, self._workspaces)


def signature(workload: Workload) -> str:
    """Return the signature as text: `(A: f32[96,64], B: f32[64,80]) -> C: f32[96,80]`."""
    inputs = ", ".join(_typed(t) for t in workload.inputs)
    return f"({inputs}) -> {', '.join(_typed(t) for t in workload.output_tensors)}"


def _typed(tensor: Tensor) -> str:
    extents = ",".join(map(str, tensor.shape))
    constant = "const " if tensor.constant else ""
    return f"{tensor.name}: {constant}{tensor.dtype}[{extents}]"


class _Workspaces:
    """Workspaces for concurrent calls, cached for later calls.

    They need no lock, because `pop` and `append` of a list are atomic.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._free = [_aligned_bytes(size_bytes)]

    def acquire(self) -> npt.NDArray[np.uint8]:
        try:
            return self._free.pop()
        except IndexError:
            return _aligned_bytes(self._size_bytes)

    def give_back(self, workspace: npt.NDArray[np.uint8]) -> None:
        self._free.append(workspace)


def _run(
    launch: Launch,
    workload: Workload,
    inputs: Sequence[Array],
    out: Array | Sequence[Array] | None,
    packed: npt.NDArray[np.uint8] | None,
    workspaces: _Workspaces,
) -> Array | tuple[Array, ...]:
    arguments = workload.arguments
    expected = [arguments[n] for n in launch.argument_positions]
    tensors = workload.output_tensors
    count = len(expected) - len(tensors)
    if len(inputs) != count:
        raise CallError(f"takes {count} inputs, got {len(inputs)}")
    if out is None:
        outputs = tuple(np.empty(t.shape, t.dtype.numpy) for t in tensors)
    else:
        outputs = _given_outputs(out, len(tensors))
    if len(outputs) != len(tensors):
        raise CallError(f"gives {len(tensors)} outputs, got {len(outputs)} arrays for them")
    for tensor, array in zip(expected, (*inputs, *outputs), strict=True):
        _check(tensor, array, is_output=any(array is o for o in outputs))
    _check_apart(inputs, outputs)
    addresses = [0] * len(arguments)
    for n, array in zip(launch.argument_positions, (*inputs, *outputs), strict=True):
        addresses[n] = array.ctypes.data
    packed_address = 0 if packed is None else packed.ctypes.data
    workspace = workspaces.acquire()
    status = launch.call(*launch.pointers(addresses, packed_address, workspace.ctypes.data))
    workspaces.give_back(workspace)
    _require_success(status)
    return outputs[0] if len(outputs) == 1 else outputs


def _given_outputs(out: object, count: int) -> tuple[Array, ...]:
    """Return the arrays of `out`. Their types and shapes are checked together with the inputs."""
    if isinstance(out, np.ndarray):
        return (out,)
    if not isinstance(out, Sequence) or isinstance(out, str | bytes):
        wanted = "a NumPy array" if count == 1 else f"a sequence of {count} NumPy arrays"
        raise CallError(f"out: takes {wanted}, got {type(out).__name__}")
    return tuple(out)


def _require_success(status: int) -> None:
    if status:
        raise AssertionError(f"the kernel returned {status} for arguments that were checked")


def _aligned_bytes(size: int) -> npt.NDArray[np.uint8]:
    """Return zeroed memory with the alignment of workspaces."""
    memory = np.zeros(size + WORKSPACE_ALIGN, np.uint8)
    start = -memory.ctypes.data % WORKSPACE_ALIGN
    return memory[start : start + size]


def compile(  # the name the documentation promises
    workload: Workload,
    trace: Trace | Sequence[Any] | None = None,
    target: Target | str | None = None,
) -> Kernel:
    """Return the kernel of `trace` (default: the schedule chosen without measurement), for this
    process.

    `trace` may be JSON data of a report (`report.best.trace`). `target` defaults to "native", this
    machine; any other text names a target file. Raise ScheduleError if the trace is not legal,
    DeadlineError if LLVM takes longer than in a search, and LoadError if the target is another
    machine, or if the kernel is parallel and OpenMP is missing.
    """
    from .compiling.deadline_compile import emit_by_deadline, missing_features
    from .machine.native_target import load_target
    from .search.default import default_trace

    if target is None or isinstance(target, str):
        # Probes are needed only to choose a schedule.
        target = load_target(target or "native", probe=trace is None)
    if trace is None:
        trace = default_trace(workload, target)
    elif not isinstance(trace, Trace):
        trace = Trace.from_json(list(trace))
    if missing := missing_features(target):
        raise LoadError(f"the kernel is for {target.cpu}, and this machine lacks {missing}")
    backend = backend_for(target)
    compiled = backend.generate(workload, trace, target, emit_by_deadline)
    arguments = len(workload.arguments)
    loaded = backend.load(compiled.object_bytes, compiled.symbol, compiled.needs, arguments)
    return Kernel(workload, compiled, loaded)


def _check(tensor: Tensor, array: object, *, is_output: bool) -> None:
    wanted = f"{tensor.dtype.numpy}{list(tensor.shape)}"
    if not isinstance(array, np.ndarray):
        raise CallError(f"{tensor.name}: takes a NumPy array {wanted}, got {type(array).__name__}")
    if isinstance(array, np.ma.MaskedArray):
        raise CallError(
            f"{tensor.name}: is a masked array, which kernels do not support: pass .filled(value), "
            "or .data to use the values under the mask"
        )
    if array.dtype != tensor.dtype.numpy or array.shape != tensor.shape:
        found = f"{array.dtype}{list(array.shape)}"
        raise CallError(f"{tensor.name}: takes {wanted}, got {found}")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise CallError(f"{tensor.name}: must be C-contiguous and aligned")
    if is_output and not array.flags.writeable:
        raise CallError(f"{tensor.name}: an output must be writable")


def _check_apart(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    for n, output in enumerate(outputs):
        if any(np.may_share_memory(output, other) for other in (*inputs, *outputs[:n])):
            raise CallError("an output may not overlap another argument")
