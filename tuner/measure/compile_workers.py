"""The compile workers of the local measurer. A command starts them before it loads the measurer,
whose import takes as long as their start."""

from __future__ import annotations

from .. import timeouts
from ..compiling.pool import CompilePool
from ..compiling.worker import DEFAULT_COMPILER
from ..process.host import cpu_affinity


def overlaps(threads: int) -> bool:
    """Return whether kernels of up to `threads` threads are timed while others are compiled."""
    return threads == 1 and len(cpu_affinity()) > 1


def compile_pool(
    threads: int,
    workers: int | None = None,
    deadline_secs: float = timeouts.COMPILE_DEADLINE_SECS,
    compiler: str = DEFAULT_COMPILER,
) -> CompilePool:
    """Return the compile workers for measuring kernels of up to `threads` threads, not started. If
    `workers` is None, there is one for each CPU that compiles."""
    cpus = cpu_affinity()
    compile_cpus = cpus[:-1] if overlaps(threads) else cpus
    return CompilePool(
        workers=workers or len(compile_cpus),
        cpus=tuple(compile_cpus),
        deadline_secs=deadline_secs,
        compiler=compiler,
    )
