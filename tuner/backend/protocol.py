"""The protocol of back ends. A back end generates, loads, launches and times kernels for one kind
of machine.

The other layers (search, session, checks, benchmarks, `compile`) contain no machine-specific code.
The `Target` has the limits of schedules. Guard pages, stacks, cores and clocks occur only in the
programs of a back end that check and time candidates and probe the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..codegen.abi import Needs

if TYPE_CHECKING:
    from ..emit.kernel import CompiledKernel

Emit: TypeAlias = Callable[[str, Target], bytes]
"""A function that compiles LLVM IR for a target. It may have a deadline or use another process."""


class LoadError(TilewrightError):
    """The code cannot be loaded. It is not a kernel, or a library is missing."""


class Buffers(Protocol):
    """Memory for kernel arguments. Each argument has one buffer, which this process can read and
    write."""

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses of the buffers in the machine's memory, for `Launch.pointers`."""
        ...

    def view(self, index: int) -> NDArray[np.uint8]:
        """Return the bytes of buffer `index`. They can be read and written between calls."""
        ...


class Launch(Protocol):
    """One way to run a loaded kernel. `loading.entries.Entry` implements it for the CPU.

    Arguments are addresses in the machine's memory, inputs first, then outputs.
    `argument_positions` are the positions of the arguments that are passed to `call`.
    """

    @property
    def argument_positions(self) -> tuple[int, ...]: ...

    @property
    def address(self) -> int:
        """The address of the code that `call` runs."""
        ...

    @property
    def workspace_bytes(self) -> int: ...

    @property
    def packed_bytes(self) -> int: ...

    def pack(self, arguments: Sequence[int], packed: int) -> int:
        """Pack constant inputs if this launch needs packed inputs. Return the status, or 0 without
        packing."""
        ...

    def pointers(self, arguments: Sequence[int], packed: int, workspace: int) -> list[int]:
        """Return the arguments of `call`: the arguments at `argument_positions`, in this order,
        then memory, which does not depend on the arguments. Memory of zero bytes is passed as NULL.
        """
        ...

    @property
    def call(self) -> Callable[..., int]:
        """The function that launches the kernel once, waits for its end and returns 0 or an error
        code."""
        ...


@dataclass(frozen=True)
class Loaded:
    """A loaded kernel, which can be launched in two ways. They are the same if it has no constant
    inputs."""

    timed: Launch
    """The launch whose time is measured. Constant inputs are packed before it."""
    whole: Launch
    """The launch that packs constant inputs inside the call."""


class Clock(Protocol):
    """A clock that times launches of kernels."""

    def samples(
        self, launch: Launch, pointers: Sequence[int], calls: int, rounds: int
    ) -> NDArray[np.float64]:
        """Return the seconds per launch in each round, shape (rounds,). A round has `calls`
        launches."""
        ...


class Backend(Protocol):
    """The code for one kind of machine. A back end is stateless, so all threads share one value."""

    @property
    def name(self) -> str: ...

    @property
    def checker(self) -> str:
        """The name of the module of the program that checks and times candidates.

        The program serves the requests of `tuner/measure/checking` with the cases of `tuner/judge`.
        """
        ...

    @property
    def prober(self) -> str:
        """The name of the module of the program that probes the machine.

        The program reads a target as JSON from standard input. It writes `Probes` as JSON to
        standard output, or one line about an error to standard error.
        """
        ...

    def makes(self, target: Target) -> bool:
        """Return whether this back end generates kernels for `target`."""
        ...

    def detect(self) -> Target:
        """Return this machine as a target of this kind, without probes, for one thread."""
        ...

    def refuse_foreign(self, target: Target) -> None:
        """Raise TargetError if kernels for `target` cannot run on this machine."""
        ...

    def warm_up(self) -> None:
        """Initialise everything that `generate` needs."""
        ...

    def generate(
        self, workload: Workload, trace: Trace, target: Target, emit: Emit | None = None
    ) -> CompiledKernel:
        """Return the code of a kernel and the memory that a call needs.

        The same arguments give the same bytes. `emit` replaces the default compiler. Raise
        ScheduleError if the trace is not legal.
        """
        ...

    def load(self, code: bytes, symbol: str, needs: Needs, arguments: int) -> Loaded:
        """Load the kernel `symbol`, which has `arguments` tensors. Raise LoadError on failure."""
        ...

    def buffers(self, size_bytes: Sequence[int], skip_bytes: int = 0) -> Buffers:
        """Return zeroed buffers that are placed in memory like the arguments of timed candidates.

        Each buffer is aligned to 64 bytes and begins in a different cache set. `skip_bytes`, a
        multiple of 64, shifts the first buffer.
        """
        ...

    def clock(self, arguments: int, target: Target) -> Clock:
        """Return a clock for kernels with `arguments` pointers on the machine `target`."""
        ...
