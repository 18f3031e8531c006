"""A compiled kernel as a Python callable on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from schedules.errors import TilewrightError
from schedules.target import Target
from schedules.trace import Trace
from schedules.workload import Tensor, Workload

from .codegen.kernel import CompiledKernel, compile_kernel
from .measure.loader import LoadedKernel, load_object, use_openmp

WORKSPACE_ALIGN = 64

Array = npt.NDArray[np.generic]


class CallError(TilewrightError, TypeError):
    """A kernel was called with arrays that do not fit its signature."""


class Kernel:
    """`kernel(a, b, out=c)` runs the kernel on arrays; `c` is returned, or made if not given.

    Arrays must have the shape and type of the workload's tensors and be C-contiguous; bf16 is
    passed as its bits, in uint16. With several outputs `out` is a sequence and a tuple is
    returned. Calls from several threads at once need kernels of their own: a kernel owns its
    workspace.
    """

    def __init__(self, workload: Workload, compiled: CompiledKernel, loaded: LoadedKernel) -> None:
        self.workload = workload
        self.compiled = compiled
        self._loaded = loaded
        self._call = loaded.caller(len(workload.arguments) + 1)
        self._memory = np.zeros(compiled.workspace_bytes + WORKSPACE_ALIGN, np.uint8)
        start = self._memory.ctypes.data
        aligned = -(-start // WORKSPACE_ALIGN) * WORKSPACE_ALIGN
        self._workspace = ctypes.c_void_p(aligned)

    def __call__(
        self, *inputs: Array, out: Array | Sequence[Array] | None = None
    ) -> Array | tuple[Array, ...]:
        """Run once. CallError names the argument that does not fit, what it is and should be."""
        if len(inputs) != len(self.workload.inputs):
            raise CallError(f"takes {len(self.workload.inputs)} inputs, got {len(inputs)}")
        tensors = self.workload.output_tensors
        if out is None:
            outputs = tuple(np.empty(t.shape, t.dtype.numpy) for t in tensors)
        else:
            outputs = (out,) if isinstance(out, np.ndarray) else tuple(out)
        if len(outputs) != len(tensors):
            raise CallError(f"gives {len(tensors)} outputs, got {len(outputs)} arrays for them")
        for tensor, array in zip(self.workload.arguments, (*inputs, *outputs), strict=True):
            _check(tensor, array, is_output=any(array is o for o in outputs))
        _check_apart(inputs, outputs)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs, *outputs)]
        status = self._call(*pointers, self._workspace)
        if status:
            raise AssertionError(f"the kernel returned {status} for arguments that were checked")
        return outputs[0] if len(outputs) == 1 else outputs


def compile(  # the name the documentation promises
    workload: Workload, trace: Trace | None = None, target: Target | None = None
) -> Kernel:
    """The kernel of `trace` (default: the schedule chosen without measuring), for this process.

    `target` defaults to this machine. ScheduleError if the trace is not legal; LoadError if the
    kernel is parallel and OpenMP's runtime is missing, or if it is made for another machine.
    """
    from .default import default_trace
    from .native_target import native_target

    target = native_target() if target is None else target
    trace = default_trace(workload, target) if trace is None else trace
    compiled = compile_kernel(workload, trace, target)
    if compiled.uses_openmp:
        use_openmp()
    return Kernel(workload, compiled, load_object(compiled.object_bytes, compiled.symbol))


def _check(tensor: Tensor, array: object, *, is_output: bool) -> None:
    wanted = f"{tensor.dtype.numpy}{list(tensor.shape)}"
    if not isinstance(array, np.ndarray):
        raise CallError(f"{tensor.name}: takes a NumPy array {wanted}, got {type(array).__name__}")
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
