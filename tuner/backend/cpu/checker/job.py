"""What a child is asked to check and time, and what the runner has ready for it."""

from __future__ import annotations

from dataclasses import dataclass

from ....codegen.abi import Needs
from ..loading import loader
from ..loading.native import Helpers
from ..memory.guarded import GuardedBuffer
from ..memory.stacks import Stacks


@dataclass(frozen=True, slots=True)
class CheckJob:
    """One kernel to check and time. `threads` is the most it may use.

    `team_sizes` are the thread counts the stand-in verifies with, `further_team_sizes` those it
    calls the kernel with once, as many as take little time. `incumbent_secs` and `final_secs` are
    the race's; `timed=False` stops after verification. `repeats` runs on the real runtime must all
    give the first result; with `misaligned`, also some on tensors that are aligned to their
    elements and no more, each at another place in a line; with `together`, also those of two
    callers at the same time. `case` is the number of the case: of a kernel so slow that one guarded
    run must do, buffers begin at a guard in odd ones and end at one in others. `thorough` finds
    what shares write in calls of their own as well, and what calls keep. `settled`: a thorough
    check of another case has passed, so shares, whose addresses do not depend on values, are
    watched where that costs little.

    A kernel with `constants` is checked and timed by its prepacked entry, with `every_entry` also
    by the one that packs in the call.
    """

    object_bytes: bytes
    symbol: str
    workspace_bytes: int
    threads: int = 1
    team_sizes: tuple[int, ...] = ()
    further_team_sizes: tuple[int, ...] = ()
    incumbent_secs: float | None = None
    final_secs: float = 0.05
    timed: bool = True
    repeats: int = 1
    misaligned: bool = False
    together: bool = False
    case: int = 0
    thorough: bool = False
    settled: bool = False
    constants: tuple[int, ...] = ()
    packed_bytes: int = 0
    prepacked_workspace_bytes: int = 0
    every_entry: bool = False

    @property
    def needs(self) -> Needs:
        return Needs(
            self.workspace_bytes, self.constants, self.packed_bytes, self.prepacked_workspace_bytes
        )

    @property
    def parallel(self) -> bool:
        """Whether the object enters parallel regions."""
        return loader.wants_openmp(self.object_bytes)


@dataclass(frozen=True)
class CheckerEnv:
    """What the measuring process has ready for every child: helpers and the clock reference.

    A reference burst of `burst_steps` steps takes `burst_secs` at the session's clock, and
    `team_burst_secs` on all threads at once; None until a parallel kernel was timed. Children of
    one check use `scratch`, memory that they share, one after the other.
    """

    helpers: Helpers
    stacks: Stacks
    burst_steps: int
    burst_secs: float
    team_burst_secs: float | None = None
    scratch: tuple[GuardedBuffer, ...] = ()
