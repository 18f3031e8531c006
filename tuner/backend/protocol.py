"""The protocol of back ends: how kernels for a kind of machine are generated, loaded, launched and
timed.

Everything above (search, session, checks, benchmarks, `compile`) uses a back end and knows nothing
of the machine. Its `Target` says what a schedule may do. Candidates are checked and timed, and the
machine is probed, by programs of the back end: nothing above knows of guard pages, stacks, cores or
clocks.
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
"""Compiles generated text to code for a target, within a deadline or in another process."""


class LoadError(TilewrightError):
    """The code cannot be loaded here: it is no kernel, or a library is missing."""


class Buffers(Protocol):
    """Memory for kernel arguments, one buffer each, readable and writable by this process."""

    @property
    def addresses(self) -> tuple[int, ...]:
        """Addresses in the machine's memory, for `Launch.pointers`."""
        ...

    def view(self, index: int) -> NDArray[np.uint8]:
        """The bytes of buffer `index`, to read and write between calls."""
        ...


class Launch(Protocol):
    """One way to run a loaded kernel: `loading.entries.Entry` is the CPU's.

    Arguments are addresses in the machine's memory, inputs and then outputs; `argument_positions`
    are the positions of those that a call passes.
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
        """Pack constant inputs if this launch needs them packed; returns the status."""
        ...

    def pointers(self, arguments: Sequence[int], packed: int, workspace: int) -> list[int]:
        """The arguments of `call`; empty memory is NULL."""
        ...

    @property
    def call(self) -> Callable[..., int]:
        """Launch once and wait for the end; returns 0 or an error code."""
        ...


@dataclass(frozen=True)
class Loaded:
    """A loaded kernel. `timed` is the launch whose time counts, with constant inputs packed before;
    `whole` packs them in the call. Without constant inputs both are the same."""

    timed: Launch
    whole: Launch


class Clock(Protocol):
    """Times launches of kernels."""

    def samples(
        self, launch: Launch, pointers: Sequence[int], calls: int, rounds: int
    ) -> NDArray[np.float64]:
        """Seconds per launch in each of `rounds` rounds of `calls` launches, without overhead."""
        ...


class Backend(Protocol):
    """One kind of machine. Stateless, so all threads share one value."""

    @property
    def name(self) -> str: ...

    @property
    def checker(self) -> str:
        """The module of the program that checks and times candidates. It answers the frames of
        `tuner/measure/checking`, with the cases of `tuner/judge`."""
        ...

    @property
    def prober(self) -> str:
        """The module of the program that probes the machine: reads a target's JSON on standard
        input, writes the JSON of `Probes` to standard output, or one line to standard error."""
        ...

    def makes(self, target: Target) -> bool:
        """Whether this back end makes kernels for `target`."""
        ...

    def detect(self) -> Target:
        """This host's machine of this kind, without probes, for kernels of one thread."""
        ...

    def refuse_foreign(self, target: Target) -> None:
        """TargetError if kernels for `target` cannot run on this host's machine."""
        ...

    def warm_up(self) -> None:
        """Initialise everything that `generate` needs."""
        ...

    def generate(
        self, workload: Workload, trace: Trace, target: Target, emit: Emit | None = None
    ) -> CompiledKernel:
        """The code of a kernel and what a call needs. ScheduleError if the trace is not legal. The
        same arguments give the same bytes; `emit` replaces the default compiler."""
        ...

    def load(self, code: bytes, symbol: str, needs: Needs, arguments: int) -> Loaded:
        """Load the kernel `symbol` with `arguments` tensors. LoadError says what is missing."""
        ...

    def buffers(self, size_bytes: Sequence[int], skip_bytes: int = 0) -> Buffers:
        """Memory like that of timed candidates: zeros, each buffer aligned to 64 bytes and in other
        cache sets than the others. `skip_bytes`, a multiple of 64, shifts the first one."""
        ...

    def clock(self, arguments: int, target: Target) -> Clock:
        """A clock for kernels with `arguments` pointers on the machine `target`."""
        ...
