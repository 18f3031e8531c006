"""The entries of a loaded kernel. One packs constant inputs inside the call; one takes packed
inputs.

A kernel without constant inputs has only the first (`tilewright.tuner.codegen.prepack`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....codegen.abi import Needs, prepack_symbol, prepacked_symbol
from .loader import LoadedKernel


@dataclass(frozen=True)
class Entry:
    """One way to run a kernel on its arguments: inputs first, then outputs.

    If `prepack` is not None, it must be called first, with the arguments at `constants` and the
    packed memory. Then `call` is called with `pointers`: the arguments at `argument_positions`, the
    packed memory and the workspace. Both functions return a status.
    """

    kernel: LoadedKernel
    address: int
    """The address of `call` in the code of `kernel`."""
    call: Callable[..., int]
    argument_positions: tuple[int, ...]
    workspace_bytes: int
    prepack: Callable[..., int] | None = None
    prepack_address: int = 0
    """The address of `prepack`."""
    constants: tuple[int, ...] = ()
    packed_bytes: int = 0

    def pack(self, arguments: Sequence[int], packed: int) -> int:
        """Pack constant inputs if this entry needs packed inputs. Return the status, or 0 without
        packing."""
        if self.prepack is None:
            return 0
        return self.prepack(*self.packing_pointers(arguments, packed))

    def packing_pointers(self, arguments: Sequence[int], packed: int) -> list[int]:
        return [*(arguments[n] for n in self.constants), packed]

    def pointers(self, arguments: Sequence[int], packed: int, workspace: int) -> list[int]:
        """Return the arguments of `call`. Memory of zero bytes is passed as NULL."""
        given = [arguments[n] for n in self.argument_positions]
        if self.prepack is not None:
            given.append(packed if self.packed_bytes else 0)
        return [*given, workspace if self.workspace_bytes else 0]


def argument_vector(pointers: Sequence[int], length: int) -> Any:
    """Return `pointers` as an array of `length` pointers for the timing helper.

    The helper always passes `length` arguments. Kernels ignore the additional null pointers.
    """
    return (ctypes.c_void_p * length)(*pointers, *[None] * (length - len(pointers)))


def whole_entry(kernel: LoadedKernel, needs: Needs, arguments: int) -> Entry:
    call = _function(kernel.address, arguments + 1)
    return Entry(kernel, kernel.address, call, tuple(range(arguments)), needs.workspace_bytes)


def timed_entry(kernel: LoadedKernel, symbol: str, needs: Needs, arguments: int) -> Entry:
    """Return the entry that is timed: the prepacked entry if the kernel has constant inputs,
    otherwise the only entry.

    Raise LoadError if the object lacks it.
    """
    if not needs.constants:
        return whole_entry(kernel, needs, arguments)
    address = kernel.function(prepacked_symbol(symbol))
    packing = kernel.function(prepack_symbol(symbol))
    argument_positions = tuple(n for n in range(arguments) if n not in needs.constants)
    return Entry(
        kernel=kernel,
        address=address,
        call=_function(address, len(argument_positions) + 2),
        argument_positions=argument_positions,
        workspace_bytes=needs.prepacked_workspace_bytes,
        prepack=_function(packing, len(needs.constants) + 1),
        prepack_address=packing,
        constants=needs.constants,
        packed_bytes=needs.packed_bytes,
    )


def _function(address: int, arguments: int) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * arguments)(address)
