"""The job of a child that checks a kernel, and the environment that the runner prepares for it."""

from __future__ import annotations

from dataclasses import dataclass

from ....codegen.abi import Needs
from ..loading import loader
from ..loading.native import Helpers
from ..memory.guarded import GuardedBuffer
from ..memory.stacks import Stacks


@dataclass(frozen=True, slots=True)
class CheckJob:
    """One kernel to check and time, which may use up to `threads` threads.

    The kernel is verified on the OpenMP stand-in with each of `team_sizes`, and called once with
    each of `further_team_sizes` within a time limit. `incumbent_secs` and `final_secs` are
    parameters of the timing race. `timed=False` stops after verification. All `repeats` runs on
    OpenMP itself must give the same result. `misaligned` adds runs with tensors at different
    offsets in a cache line, aligned only to their elements. `together` adds two concurrent callers.
    `case` is the number of the case: for a kernel that is too slow for two guarded runs, it selects
    the placement. `thorough` also observes writes on random memory and repeats calls without
    refilling memory. `settled` states that another case has passed a thorough check; because
    addresses do not depend on values, writes are then observed only if that is cheap.

    A kernel with `constants` is checked and timed by its prepacked entry. With `every_entry`, the
    entry that packs inside the call is checked too.
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
    """The environment of all children: native helpers, stacks and the reference burst.

    A burst of `burst_steps` steps takes `burst_secs` on an undisturbed core, and `team_burst_secs`
    on all threads concurrently (None until a parallel kernel was timed). The children of one check
    reuse the shared memory `scratch`, one after the other.
    """

    helpers: Helpers
    stacks: Stacks
    burst_steps: int
    burst_secs: float
    team_burst_secs: float | None = None
    scratch: tuple[GuardedBuffer, ...] = ()
