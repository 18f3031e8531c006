"""What a back end is: how kernels for a kind of machine are generated, loaded, launched and timed.

Whatever stands above (search, session, checks, benchmarks, `compile`) asks a back end and knows
nothing of the machine. What a schedule may do on it says its `Target`; how candidates are checked
and timed, and how the machine is measured, are programs of the back end's: nothing above knows of
guard pages, stacks, cores or clocks.
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
"""From generated text to the code of a target, in whatever time and process the caller likes."""


class LoadError(TilewrightError):
    """The code cannot be loaded here: it is not a kernel's, or a library is missing."""


class Buffers(Protocol):
    """Memory that kernels are called on, one piece an argument; this process sees its bytes."""

    @property
    def addresses(self) -> tuple[int, ...]:
        """Of the machine's, for `Launch.pointers`."""
        ...

    def view(self, index: int) -> NDArray[np.uint8]:
        """The bytes of piece `index`, to be read and written between calls."""
        ...


class Launch(Protocol):
    """One way to run a loaded kernel: `loading.entries.Entry` is the CPU's.

    Arguments are addresses of the machine's, inputs and then outputs; `taken` are the positions of
    those that a call is given.
    """

    @property
    def taken(self) -> tuple[int, ...]: ...

    @property
    def address(self) -> int:
        """Where the code is that `call` runs."""
        ...

    @property
    def workspace_bytes(self) -> int: ...

    @property
    def packed_bytes(self) -> int: ...

    def pack(self, arguments: Sequence[int], packed: int) -> int:
        """Pack constant inputs if this way needs that; the status."""
        ...

    def pointers(self, arguments: Sequence[int], packed: int, workspace: int) -> list[int]:
        """What `call` takes; memory of no bytes is NULL."""
        ...

    @property
    def call(self) -> Callable[..., int]:
        """Launch once and wait for the end; 0, or an error code."""
        ...


@dataclass(frozen=True)
class Loaded:
    """A kernel where it can be launched: `timed` is the way whose time counts, which finds constant
    inputs packed; `whole` packs in the call. Without constant inputs they do the same."""

    timed: Launch
    whole: Launch


class Clock(Protocol):
    """Times launches of kernels with so many arguments."""

    def samples(
        self, launch: Launch, pointers: Sequence[int], calls: int, rounds: int
    ) -> NDArray[np.float64]:
        """Seconds a launch in each of `rounds` rounds of `calls` launches, nothing else counted."""
        ...


class Backend(Protocol):
    """One kind of machine. Stateless, so one value serves every thread."""

    @property
    def name(self) -> str: ...

    @property
    def checker(self) -> str:
        """The module whose program checks and times candidates. It answers the frames of
        `tuner/measure/checking`, and judges by `tuner/judge`."""
        ...

    @property
    def prober(self) -> str:
        """The module whose program measures the machine: a target's JSON on its standard input,
        the JSON of `Probes` on its standard output, one line on standard error where it fails."""
        ...

    def makes(self, target: Target) -> bool:
        """Whether kernels for `target` are this back end's."""
        ...

    def detect(self) -> Target:
        """The machine of this kind that is here, not probed, for kernels of one thread."""
        ...

    def refuse_foreign(self, target: Target) -> None:
        """TargetError, which says why, if kernels for `target` cannot run on the machine here."""
        ...

    def warm_up(self) -> None:
        """Pay for the first use of what `generate` needs."""
        ...

    def generate(
        self, workload: Workload, trace: Trace, target: Target, emit: Emit | None = None
    ) -> CompiledKernel:
        """The code of a kernel and what calling it takes. ScheduleError if the trace is not legal.
        The same arguments give the same bytes; `emit` replaces how text becomes code."""
        ...

    def load(self, code: bytes, symbol: str, needs: Needs, arguments: int) -> Loaded:
        """The kernel `symbol` of `arguments` tensors, where it can be launched. LoadError says what
        is missing."""
        ...

    def buffers(self, size_bytes: Sequence[int], skip_bytes: int = 0) -> Buffers:
        """Memory like that which candidates are timed on: zeros, each piece aligned to 64 bytes and
        away from the others' cache sets. `skip_bytes` shifts the first, a multiple of 64."""
        ...

    def clock(self, arguments: int, target: Target) -> Clock:
        """A clock for kernels launched with `arguments` pointers on the machine `target`."""
        ...
