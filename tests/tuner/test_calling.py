"""Calls on arrays: the quick check accepts only what the full check accepts, and bound calls run
again on the arrays that were checked once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.schedules.workloads import notation
from tilewright.schedules import operators
from tilewright.schedules.dtypes import NUMBERS, DType
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.computation import with_constants
from tilewright.schedules.workload.tensors import Tensor
from tilewright.tuner import compile
from tilewright.tuner.calling import CallError, check_apart, check_array, quick_addresses
from tilewright.tuner.kernel import Kernel
from tilewright.tuner.machine.native_target import native_target

Array = np.ndarray[Any, Any]


def made(workload: Any, trace: Trace | None = None) -> Kernel:
    return compile(workload, trace, native_target(probe=False))


def matmul(m: int = 4, n: int = 6, k: int = 5) -> Kernel:
    return made(operators.build("matmul", M=m, N=n, K=k))


def floats(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 - 3


# -- the quick check


def fitting(tensor: Tensor) -> Array:
    return np.zeros(tensor.shape, tensor.dtype.numpy)


def read_only(tensor: Tensor) -> Array:
    array = fitting(tensor)
    array.flags.writeable = False
    return array


def misaligned(tensor: Tensor) -> Array:
    array = fitting(tensor)
    memory = np.zeros(array.nbytes + 1, np.uint8)
    return memory[1:].view(array.dtype).reshape(array.shape)


def strided(tensor: Tensor) -> Array:
    return np.zeros((*tensor.shape, 2), tensor.dtype.numpy)[..., 1]


def odd_strides(tensor: Tensor) -> Array:
    """Contiguous if all extents are 1, because their strides do not matter."""
    wide = np.zeros([3 * extent for extent in tensor.shape], tensor.dtype.numpy)
    return wide[tuple(slice(extent) for extent in tensor.shape)]


ARRAYS: Sequence[Callable[[Tensor], Any]] = (
    fitting,
    read_only,
    misaligned,
    strided,
    odd_strides,
    lambda t: np.asfortranarray(fitting(t)),
    lambda t: fitting(t)[None],
    lambda t: fitting(t).reshape(-1),
    lambda t: fitting(t).view(f"V{t.dtype.bytes}"),
    lambda t: fitting(t).view(fitting(t).dtype.newbyteorder()),
    lambda t: fitting(t).astype(np.complex64),
    lambda t: fitting(t).astype(np.dtype(t.dtype.numpy, metadata={"of": "a file"})),
    lambda t: np.ma.masked_array(fitting(t)),
    lambda t: fitting(t).view(np.recarray),
    lambda t: fitting(t).tolist(),
    lambda t: fitting(t).data,
    lambda t: None,
)  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[Tensor], int, tuple[Any, ...]]:
    """Tensors, the number of inputs, and arrays that fit some of them or share memory."""
    extents = st.lists(st.integers(1, 3), max_size=3).map(tuple)
    tensors = [
        Tensor(f"t{n}", draw(extents), draw(st.sampled_from(NUMBERS)))
        for n in range(draw(st.integers(1, 4)))
    ]
    kinds = st.one_of(st.just(fitting), st.sampled_from(ARRAYS), st.integers(0, 48))
    memory = np.zeros(512, np.uint8)

    def array(tensor: Tensor) -> Any:
        kind = draw(kinds)
        if not isinstance(kind, int):
            return kind(tensor)
        alike = fitting(tensor)
        return memory[kind : kind + alike.nbytes].view(alike.dtype).reshape(alike.shape)

    return tensors, draw(st.integers(0, len(tensors) - 1)), tuple(map(array, tensors))


def refusal(tensor: Tensor, array: Any, *, is_output: bool) -> str | None:
    """The message of the full check about one array, or None."""
    try:
        check_array(tensor, array, is_output=is_output)
    except CallError as error:
        return str(error)
    return None


def overlap(inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    try:
        check_apart(inputs, outputs)
    except CallError:
        return True
    return False


@given(calls())
def test_the_quick_check_accepts_only_what_the_full_check_accepts(
    call: tuple[list[Tensor], int, tuple[Any, ...]],
) -> None:
    tensors, inputs, arrays = call
    found = quick_addresses(tensors, inputs)(arrays)
    plain = all(type(array) is np.ndarray for array in arrays)
    errors = [
        refusal(tensor, array, is_output=n >= inputs)
        for n, (tensor, array) in enumerate(zip(tensors, arrays, strict=True))
    ]
    if any(errors) or overlap(arrays[:inputs], arrays[inputs:]):
        assert found is None
    else:
        assert found == (tuple(a.ctypes.data for a in arrays) if plain else None)


@pytest.mark.parametrize("start", range(17))
def test_the_quick_check_finds_every_overlap(start: int) -> None:
    """Bytes 6 to 10 are an output, and `start` is where 4 bytes of another argument begin."""
    memory = np.zeros(32, np.uint8)
    tensors = [Tensor("x", (4,), DType.U8), Tensor("y", (5,), DType.U8)]
    other, output = memory[start : start + 4], memory[6:11]
    wanted = None if 2 < start < 11 else (other.ctypes.data, output.ctypes.data)
    assert quick_addresses(tensors, 1)((other, output)) == wanted
    both_outputs = quick_addresses(tensors[::-1], 0)((output, other))
    assert both_outputs == (wanted and wanted[::-1])


def test_inputs_may_overlap_each_other() -> None:
    kernel, a = matmul(4, 4, 4), floats(4, 4)
    np.testing.assert_array_equal(kernel(a, a), a @ a)


@pytest.mark.parametrize("wrong", [n for n, kind in enumerate(ARRAYS) if kind is not fitting])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_array_that_the_quick_check_rejects_gets_its_error_or_its_result(
    wrong: int, place: int
) -> None:
    workload = operators.build("matmul", M=4, N=6, K=5)
    kernel = made(workload)
    arrays: list[Any] = [floats(4, 5), floats(5, 6), np.empty((4, 6), np.float32)]
    tensor = workload.arguments[place]
    arrays[place] = ARRAYS[wrong](tensor)
    error = refusal(tensor, arrays[place], is_output=place == 2)
    if error is None:
        found = kernel(*arrays[:2], out=arrays[2])
        assert found is arrays[2]
        np.testing.assert_array_equal(found, np.asarray(arrays[0]) @ np.asarray(arrays[1]))
        return
    for refuse in (kernel, kernel.bind):
        with pytest.raises(CallError) as raised:
            refuse(*arrays[:2], out=[arrays[2]])
        assert str(raised.value) == error


def test_inputs_and_outputs_are_counted_apart() -> None:
    kernel = matmul(4, 4, 4)
    a = floats(4, 4)
    with pytest.raises(CallError, match="takes 2 inputs, got 3"):
        kernel(a, a, a, out=())
    with pytest.raises(CallError, match="gives 1 outputs, got 2 arrays"):
        kernel(a, a, out=(a.copy(), a.copy()))


def test_an_output_that_is_read_only_is_refused() -> None:
    kernel = matmul(4, 4, 4)
    a, out = floats(4, 4), np.zeros((4, 4), np.float32)
    out.flags.writeable = False
    with pytest.raises(CallError, match="an output must be writable"):
        kernel(a, a, out=out)


def test_new_outputs_begin_at_a_line() -> None:
    kernel, a = matmul(4, 4, 4), floats(4, 4)
    for _ in range(5):
        found: Any = kernel(a, a)
        assert found.ctypes.data % 64 == 0
        assert found.flags.c_contiguous
        assert found.flags.writeable


# -- bound calls


def test_a_bound_call_reads_its_inputs_at_each_call() -> None:
    kernel = matmul()
    a, b, c = floats(4, 5), floats(5, 6), np.full((4, 6), np.nan, np.float32)
    call = kernel.bind(a, b, out=c)
    assert np.isnan(c).all(), "binding must not run the kernel"
    for step in range(3):
        a += step
        assert call() is c
        np.testing.assert_array_equal(c, a @ b)


def test_a_bound_call_without_outputs_makes_them_once() -> None:
    call = matmul().bind(floats(4, 5), floats(5, 6))
    first = call()
    assert call() is first
    np.testing.assert_array_equal(first, floats(4, 5) @ floats(5, 6))
    assert repr(call) == "<BoundCall -> float32[4, 6]>"


def test_a_bound_call_keeps_all_that_it_uses() -> None:
    a, b = floats(4, 5), floats(5, 6)
    wanted = a @ b
    kept = [weakref.ref(a), weakref.ref(b)]
    workload = operators.build("matmul", M=4, N=6, K=5, constant="B")
    call = made(workload).prepack(b).bind(a)
    whole = matmul().bind(a, b)
    del a, b
    gc.collect()
    assert all(reference() is not None for reference in kept)
    np.testing.assert_array_equal(call(), wanted)
    np.testing.assert_array_equal(whole(), wanted)
    del call, whole
    gc.collect()
    assert all(reference() is None for reference in kept)


def test_a_bound_call_of_several_outputs_returns_them_all() -> None:
    kernel = made(notation("S[i] += X[i,j]; M[i] max= X[i,j]", X="f32[3,4]"))
    x = floats(3, 4)
    total, largest = np.empty(3, np.float32), np.empty(3, np.float32)
    call = kernel.bind(x, out=[total, largest])
    found = call()
    assert isinstance(found, tuple)
    assert found[0] is total
    assert found[1] is largest
    np.testing.assert_array_equal(total, x.sum(1))
    np.testing.assert_array_equal(largest, x.max(1))


def test_binding_refuses_what_a_call_refuses() -> None:
    kernel = matmul(4, 4, 4)
    a = floats(4, 4)
    with pytest.raises(CallError, match="takes 2 inputs, got 1"):
        kernel.bind(a)
    with pytest.raises(CallError, match="an output may not overlap another argument"):
        kernel.bind(a, a, out=a)
    with pytest.raises(CallError, match="out: takes a NumPy array, got str"):
        kernel.bind(a, a, out="c")  # type: ignore[arg-type]


@pytest.mark.parametrize("prepacked", [False, True])
def test_bound_calls_and_plain_calls_of_one_kernel_may_run_at_once(prepacked: bool) -> None:
    """The first stage's result lies in the workspace: calls that shared one would mix theirs."""
    n = 64
    built = notation(
        "T[i,j] += A[i,k] * B[k,j]; C[i,j] += T[i,k] * B[k,j]", A=f"f32[{n},{n}]", B=f"f32[{n},{n}]"
    )
    workload = with_constants(built, ["B"]) if prepacked else built
    kernel = made(workload, Trace(()))
    assert kernel.compiled.workspace_bytes
    b = floats(n, n)
    lefts = [floats(n, n) + step for step in range(4)]
    if prepacked:
        packed = kernel.prepack(b)
        bound = [packed.bind(a) for a in lefts]
        plain = [lambda a=a: packed(a) for a in lefts]
    else:
        bound = [kernel.bind(a, b) for a in lefts]
        plain = [lambda a=a: kernel(a, b) for a in lefts]

    def run(number: int) -> None:
        for _ in range(20):
            for call in (bound[number], plain[number]):
                np.testing.assert_array_equal(call(), lefts[number] @ b @ b)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


def test_a_kernel_whose_status_is_not_zero_is_an_error() -> None:
    kernel = matmul(4, 4, 4)
    a = floats(4, 4)
    call = kernel.bind(a, a)
    call._launch = lambda: 2  # type: ignore[assignment]
    with pytest.raises(AssertionError, match="returned 2"):
        call()


def test_element_types_are_those_of_the_workload() -> None:
    """bf16 is passed as its bits: an array of another type of 16 bits must not be read as bf16."""
    kernel = made(notation("C[i] = A[i] + A[i]", A="bf16[4]"))
    assert kernel.workload.inputs[0].dtype is DType.BF16
    with pytest.raises(CallError, match=r"A: takes uint16\[4\], got float16\[4\]"):
        kernel(np.zeros(4, np.float16))
