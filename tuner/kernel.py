"""A compiled kernel as a Python callable on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

from .arrays import address_of
from .backend.protocol import Launch, Loaded, LoadError
from .backend.registry import backend_for
from .calling import (
    Array,
    ArrayLaunch,
    BoundCall,
    CallError,
    aligned_bytes,
    check_array,
    raise_status,
)
from .emit.kernel import CompiledKernel

__all__ = ["BoundCall", "CallError", "Kernel", "PrepackedKernel", "compile", "signature"]

# Start-up: with an explicit trace and target, the modules that choose them are not loaded.


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
        self._arrays = ArrayLaunch(loaded.whole, workload)

    def __repr__(self) -> str:
        name = self.workload.name or self.workload.key
        return f"<Kernel {name} {signature(self.workload)}>"

    def __call__(
        self, *inputs: Array, out: Array | Sequence[Array] | None = None
    ) -> Array | tuple[Array, ...]:
        """Run the kernel once; raise CallError, with the argument's name, for a wrong type or
        shape."""
        return self._arrays.run(inputs, out)

    def bind(self, *inputs: Array, out: Array | Sequence[Array] | None = None) -> BoundCall:
        """Return the call on these arrays, which checks nothing: `call = kernel.bind(a, b, out=c)`,
        then `call()`.

        Without `out`, the outputs are new arrays, which every call overwrites and returns. Raise
        CallError as a call does.
        """
        return self._arrays.bind(inputs, out)

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
            check_array(tensor, array, is_output=False)
        launch = self._loaded.timed
        given = dict(zip(self.compiled.constants, constants, strict=True))
        arguments = [
            address_of(given[n]) if n in given else 0 for n in range(len(self.workload.inputs))
        ]
        packed = aligned_bytes(launch.packed_bytes)
        if status := launch.pack(arguments, address_of(packed)):
            raise_status(status)
        return PrepackedKernel(self, launch, packed)


class PrepackedKernel:
    """A kernel without its constant inputs, otherwise like `Kernel`: `prepacked(a, out=c)`.

    Concurrent calls share the packed memory, which no call changes.
    """

    def __init__(self, kernel: Kernel, launch: Launch, packed: npt.NDArray[np.uint8]) -> None:
        self.kernel = kernel
        self._arrays = ArrayLaunch(launch, kernel.workload, packed)

    def __repr__(self) -> str:
        return f"<PrepackedKernel of {self.kernel!r}>"

    def __call__(
        self, *inputs: Array, out: Array | Sequence[Array] | None = None
    ) -> Array | tuple[Array, ...]:
        """Run the kernel once on the inputs that are not constant; raise CallError as `Kernel`
        does."""
        return self._arrays.run(inputs, out)

    def bind(self, *inputs: Array, out: Array | Sequence[Array] | None = None) -> BoundCall:
        """Return the call on these arrays, as `Kernel.bind` does."""
        return self._arrays.bind(inputs, out)


def signature(workload: Workload) -> str:
    """Return the signature as text: `(A: f32[96,64], B: f32[64,80]) -> C: f32[96,80]`."""
    inputs = ", ".join(_typed(t) for t in workload.inputs)
    return f"({inputs}) -> {', '.join(_typed(t) for t in workload.output_tensors)}"


def _typed(tensor: Tensor) -> str:
    extents = ",".join(map(str, tensor.shape))
    constant = "const " if tensor.constant else ""
    return f"{tensor.name}: {constant}{tensor.dtype}[{extents}]"


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
