"""The job of a child process that checks a kernel, and the environment that the runner prepares for
the child."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ....codegen.abi import Needs
from ..loading import loader
from ..loading.native import Helpers
from ..memory.guarded import GuardedBuffer
from ..memory.stacks import Stacks


@dataclass(frozen=True)
class CheckJob:
    """One kernel to check and time."""

    object_bytes: bytes
    symbol: str
    workspace_bytes: int
    threads: int = 1
    """The greatest number of threads that the kernel may use."""
    team_sizes: tuple[int, ...] = ()
    """The kernel is verified on the OpenMP stand-in with each of these numbers of threads."""
    further_team_sizes: tuple[int, ...] = ()
    """Further numbers of threads, each with one call, within a time limit."""
    incumbent_secs: float | None = None
    """The time of the incumbent, a parameter of the timing race (see `TimingRace`)."""
    final_secs: float = 0.03
    """The greatest time of sampling after the last rung of the timing race."""
    finalist: bool = False
    """The candidate was measured before, and its time decides which candidate is checked fully."""
    timed: bool = True
    """False ends the job after verification."""
    repeats: int = 1
    """The number of runs on OpenMP itself. All must give the same result."""
    misaligned: bool = False
    """Adds runs with tensors at different offsets in a cache line, aligned only to their
    elements."""
    together: bool = False
    """Adds two concurrent callers."""
    case: int = 0
    """The number of the case. A kernel that is too slow for two guarded runs has one, whose
    placement depends on this number."""
    thorough: bool = False
    """Also observes writes on random memory, and repeats calls without refilling memory."""
    settled: bool = False
    """Another case has passed a thorough check. Addresses do not depend on values, so writes are
    observed only if that is cheap."""
    constants: tuple[int, ...] = ()
    """The positions of constant inputs. A kernel that has some is checked and timed by its
    prepacked entry."""
    packed_bytes: int = 0
    prepacked_workspace_bytes: int = 0
    every_entry: bool = False
    """Also checks the entry that packs constant inputs inside the call."""

    @property
    def needs(self) -> Needs:
        return Needs(
            self.workspace_bytes, self.constants, self.packed_bytes, self.prepacked_workspace_bytes
        )

    @cached_property
    def parallel(self) -> bool:
        """Return whether the object enters parallel regions."""
        return loader.wants_openmp(self.object_bytes)


@dataclass(frozen=True)
class CheckerEnv:
    """The environment of all children: native helpers, stacks and the reference burst."""

    helpers: Helpers
    stacks: Stacks
    burst_steps: int
    """The number of steps of the reference burst."""
    burst_secs: float
    """Its time on an undisturbed core."""
    engine: Any = None
    """An LLVM engine without code, into which a child loads its kernel (see
    `loader.empty_engine`)."""
    team_burst_secs: float | None = None
    """Its time on all threads concurrently, or None until a parallel kernel was timed."""
    scratch: tuple[GuardedBuffer, ...] = ()
    """Shared memory that the children of one check reuse, one after the other."""
