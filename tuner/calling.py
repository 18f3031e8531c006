"""Calls of loaded kernels on NumPy arrays.

A call of a small kernel takes less time than a careful check of its arrays. Each call therefore
first compares its arrays with what the kernel expects, in as few operations as possible. Only if an
array differs in anything, the second check determines whether it fits nevertheless, and otherwise
raises the error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.narrow import narrowed, widened
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

from .arrays import ALIGN_BYTES, address_of, allocator
from .backend.protocol import Launch

Array = npt.NDArray[np.generic]


class CallError(TilewrightError, TypeError):
    """A kernel was called with arrays that do not match its signature."""


class BoundCall:
    """A call of a kernel with arrays that are already checked: `call()` runs it on them again.

    Each call reads the current values of the inputs, writes the same outputs and returns them: one
    array, or a tuple of several. The arrays are kept alive. Different bound calls may run at once,
    but one bound call must not be called by two threads at once, because all its calls write the
    same outputs and the same workspace.
    """

    __slots__ = ("_keeps", "_launch", "_outputs", "_result")

    def __init__(
        self,
        launch: Launch,
        pointers: Sequence[int],
        outputs: tuple[Array, ...],
        keeps: tuple[object, ...],
    ) -> None:
        self._launch = partial(launch.call, *pointers)
        self._outputs = outputs
        self._result = outputs[0] if len(outputs) == 1 else outputs
        self._keeps = (launch, *keeps)  # the code, and all memory that `pointers` point to

    def __repr__(self) -> str:
        written = ", ".join(f"{array.dtype}{list(array.shape)}" for array in self._outputs)
        return f"<BoundCall -> {written}>"

    def __call__(self) -> Array | tuple[Array, ...]:
        """Run the kernel once on the bound arrays and return its outputs."""
        if status := self._launch():
            raise_status(status)
        return self._result


class ArrayLaunch:
    """A launch of a kernel that takes NumPy arrays. Concurrent runs have different workspaces.

    `packed` is the packed memory of a launch that needs it; no run changes it.
    """

    def __init__(
        self, launch: Launch, workload: Workload, packed: npt.NDArray[np.uint8] | None = None
    ) -> None:
        arguments = workload.arguments
        self._launch = launch
        self._call = launch.call
        self._packed = packed
        self._expected = [arguments[n] for n in launch.argument_positions]
        self._new = [allocator(x.shape, x.dtype.numpy) for x in workload.output_tensors]
        self._output_count = len(self._new)
        self._has_one_output = self._output_count == 1
        self._input_count = len(self._expected) - self._output_count
        self._singles = [
            (n, tensor.dtype.numpy, _largest(tensor.dtype))
            for n, tensor in enumerate(self._expected[: self._input_count])
            if not tensor.shape
        ]
        self._quick_addresses = quick_addresses(self._expected, self._input_count)
        self._free = [_Workspace(launch, len(arguments), packed)]
        self._argument_count = len(arguments)

    def run(
        self, inputs: tuple[Array, ...], out: Array | Sequence[Array] | None
    ) -> Array | tuple[Array, ...]:
        """Run the kernel once and return `out`, or new arrays if it is None. An input without
        dimensions may be a number.

        Raise CallError if the arrays do not match the signature.
        """
        if self._singles and len(inputs) == self._input_count:
            inputs = self._with_arrays(inputs)
        if type(out) is np.ndarray and self._has_one_output and len(inputs) == self._input_count:
            outputs: tuple[Array, ...] = (out,)
        else:
            outputs = self._given(inputs, out)
        addresses = self._quick_addresses(inputs + outputs)
        if addresses is None:
            addresses = self._checked_addresses(inputs, outputs)
        try:
            # No lock is needed, because `pop` and `append` of a list are atomic.
            workspace = self._free.pop()
        except IndexError:
            workspace = self._workspace()
        status = self._call(*addresses, *workspace.pointers)
        self._free.append(workspace)
        if status:
            raise_status(status)
        return outputs[0] if self._has_one_output else outputs

    def bind(self, inputs: tuple[Array, ...], out: Array | Sequence[Array] | None) -> BoundCall:
        """Return the call on these arrays, and on these numbers. Raise CallError as `run` does."""
        if self._singles and len(inputs) == self._input_count:
            inputs = self._with_arrays(inputs)
        outputs = self._given(inputs, out)
        addresses = self._checked_addresses(inputs, outputs)
        workspace = self._workspace()
        keeps = (inputs, self._packed, workspace)
        return BoundCall(self._launch, (*addresses, *workspace.pointers), outputs, keeps)

    def _given(
        self, inputs: tuple[Array, ...], out: Array | Sequence[Array] | None
    ) -> tuple[Array, ...]:
        """Return the output arrays, if there are as many inputs and outputs as the kernel has."""
        if len(inputs) != self._input_count:
            raise CallError(f"takes {self._input_count} inputs, got {len(inputs)}")
        if out is None:
            return tuple([new() for new in self._new])
        outputs = (out,) if isinstance(out, np.ndarray) else _sequence(out, self._output_count)
        if len(outputs) != self._output_count:
            raise CallError(
                f"gives {self._output_count} outputs, got {len(outputs)} arrays for them"
            )
        return outputs

    def _with_arrays(self, inputs: tuple[object, ...]) -> tuple[Array, ...]:
        """Return `inputs` with the numbers among them as arrays without dimensions."""
        given: list[Any] = list(inputs)
        for n, kind, largest in self._singles:
            value = given[n]
            if type(value) is float and -largest <= value <= largest:  # the usual case, quickly
                given[n] = np.array(value, kind)
            elif type(value) is not np.ndarray:
                given[n] = single_array(self._expected[n], value)
        return tuple(given)

    def _checked_addresses(
        self, inputs: tuple[Array, ...], outputs: tuple[Array, ...]
    ) -> tuple[int, ...]:
        """Return the addresses of arrays of any kind that fits, or raise CallError."""
        arrays = (*inputs, *outputs)
        for tensor, array in zip(self._expected, arrays, strict=True):
            check_array(tensor, array, is_output=any(array is o for o in outputs))
        check_apart(inputs, outputs)
        return tuple(address_of(array) for array in arrays)

    def _workspace(self) -> _Workspace:
        return _Workspace(self._launch, self._argument_count, self._packed)


class _Workspace:
    """The workspace of one call at a time, with the pointers that follow those of the arrays."""

    __slots__ = ("memory", "pointers")

    def __init__(
        self, launch: Launch, arguments: int, packed: npt.NDArray[np.uint8] | None
    ) -> None:
        self.memory = aligned_bytes(launch.workspace_bytes)
        packed_address = 0 if packed is None else address_of(packed)
        pointers = launch.pointers([0] * arguments, packed_address, address_of(self.memory))
        self.pointers = tuple(pointers[len(launch.argument_positions) :])


# `from_buffer` uses the buffer protocol, which is several times as fast as `ctypes.data` and
# `__array_interface__`, because these describe the whole array in Python objects. It raises
# TypeError unless the array is C-contiguous and writable.
_INPUT_ADDRESS = """
    try:
        p{n} = addressof(from_buffer(a{n}))
    except TypeError:
        if not a{n}.flags.c_contiguous:
            return None
        p{n} = address_of(a{n})
"""
_OUTPUT_ADDRESS = """
    try:
        p{n} = addressof(from_buffer(a{n}))
    except TypeError:
        return None
"""


def quick_addresses(
    expected: Sequence[Tensor], input_count: int
) -> Callable[[tuple[Array, ...]], tuple[int, ...] | None]:
    """Return a function that takes one array for each tensor and returns their addresses, or None.

    None means that an array needs the full check: it does not fit, or it is of a subclass. The
    conditions are those of `check_array` and `check_apart`. The function is generated as text for
    this signature, because loops would take a third of the time of a call.
    """
    numbers = range(len(expected))
    dtypes = [tensor.dtype.numpy for tensor in expected]
    sizes = [prod(t.shape) * dtype.itemsize for t, dtype in zip(expected, dtypes, strict=True)]
    unlike = [
        f"type(a{n}) is not ndarray or a{n}.dtype != d{n} or a{n}.shape != {tensor.shape}"
        for n, tensor in enumerate(expected)
    ]
    misaligned = [f"p{n} & {dtype.alignment - 1}" for n, dtype in enumerate(dtypes)]
    overlapping = [
        f"-{sizes[n]} < p{n} - p{other} < {sizes[other]}"
        for n in numbers[input_count:]
        for other in numbers[:n]
    ]
    inputs = "".join(_INPUT_ADDRESS.format(n=n) for n in numbers[:input_count])
    outputs = "".join(_OUTPUT_ADDRESS.format(n=n) for n in numbers[input_count:])
    source = f"""
def addresses(arrays):
    {", ".join(f"a{n}" for n in numbers)}, = arrays
    if {" or ".join(unlike)}:
        return None
{inputs}{outputs}
    if {" or ".join((*misaligned, *overlapping))}:
        return None
    return {", ".join(f"p{n}" for n in numbers)},
"""
    names: dict[str, Any] = {f"d{n}": dtype for n, dtype in enumerate(dtypes)} | {
        "ndarray": np.ndarray,
        "addressof": ctypes.addressof,
        "from_buffer": ctypes.c_char.from_buffer,
        "address_of": address_of,
    }
    exec(source, names)
    function: Callable[[tuple[Array, ...]], tuple[int, ...] | None] = names["addresses"]
    return function


def _sequence(out: object, count: int) -> tuple[Array, ...]:
    """Return the arrays of `out`. Their types and shapes are checked together with the inputs."""
    if not isinstance(out, Sequence) or isinstance(out, str | bytes):
        wanted = "a NumPy array" if count == 1 else f"a sequence of {count} NumPy arrays"
        raise CallError(f"out: takes {wanted}, got {type(out).__name__}")
    return tuple(out)


def raise_status(status: int) -> None:
    raise AssertionError(f"the kernel returned {status} for arguments that were checked")


def aligned_bytes(size: int) -> npt.NDArray[np.uint8]:
    """Return zeroed memory with the alignment of workspaces, which is that of cache lines."""
    memory = np.zeros(size + ALIGN_BYTES, np.uint8)
    start = -address_of(memory) % ALIGN_BYTES
    return memory[start : start + size]


def _largest(dtype: DType) -> float:
    """Return the largest number that NumPy converts to `dtype` with one rounding, or -1 for a type
    of which NumPy knows only the bits."""
    return dtype.binary.largest if dtype in (DType.F32, DType.F64) else -1.0


def single_array(tensor: Tensor, value: object) -> Array:
    """Return a number of Python or NumPy as an array without dimensions, rounded to the type of
    `tensor`; other values are returned unchanged. Raise CallError if the number is of another kind
    or does not fit."""
    dtype = tensor.dtype
    if isinstance(value, np.ndarray) or not isinstance(value, int | float | np.generic):
        return value  # type: ignore[return-value]  # `check_array` explains what is wrong
    is_bool = isinstance(value, bool | np.bool_)
    is_whole = not is_bool and isinstance(value, int | np.integer)
    is_number = is_whole or isinstance(value, float | np.floating)
    if not (is_bool if dtype is DType.BOOL else is_number if dtype.is_float else is_whole):
        wanted = "a bool" if dtype is DType.BOOL else "a number" if dtype.is_float else "an integer"
        raise CallError(f"{tensor.name}: takes {wanted} ({dtype}), got {value!r}")
    if not dtype.is_float:
        low, high = dtype.integer_range
        if not low <= int(value) <= high:
            raise CallError(f"{tensor.name}: {value!r} does not fit {dtype} ({low}..{high})")
        return np.array(value, dtype.numpy)
    with np.errstate(over="ignore"):
        if dtype.is_narrow_float:
            found = np.asarray(narrowed(np.asarray(float(value)), dtype))
        else:
            found = np.array(value, dtype.numpy)
    exceeds = np.isinf(widened(found, dtype)) and not np.isinf(float(value))
    if exceeds:
        raise CallError(f"{tensor.name}: {value!r} does not fit {dtype}")
    return found


def check_array(tensor: Tensor, array: object, *, is_output: bool) -> None:
    """Raise CallError, with the name of the tensor, if `array` cannot be passed for it."""
    if not isinstance(array, np.ndarray):
        kind = "a NumPy array" if tensor.shape else "a number or a NumPy array"
        raise CallError(
            f"{tensor.name}: takes {kind} {_wanted(tensor)}, got {type(array).__name__}"
        )
    if isinstance(array, np.ma.MaskedArray):
        raise CallError(
            f"{tensor.name}: is a masked array, which kernels do not support: pass .filled(value), "
            "or .data to use the values under the mask"
        )
    if array.dtype != tensor.dtype.numpy or array.shape != tensor.shape:
        found = f"{array.dtype}{list(array.shape)}"
        raise CallError(f"{tensor.name}: takes {_wanted(tensor)}, got {found}")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise CallError(f"{tensor.name}: must be C-contiguous and aligned")
    if is_output and not array.flags.writeable:
        raise CallError(f"{tensor.name}: an output must be writable")


def _wanted(tensor: Tensor) -> str:
    return f"{tensor.dtype.numpy}{list(tensor.shape)}"


def check_apart(inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    for n, output in enumerate(outputs):
        if any(np.may_share_memory(output, other) for other in (*inputs, *outputs[:n])):
            raise CallError("an output may not overlap another argument")
