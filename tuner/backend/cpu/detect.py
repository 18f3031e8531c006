"""Detection of this machine's CPU, and the check whether it can run code for a target."""

from __future__ import annotations

from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Target

from ...emit.object_code import host_names
from ...isa.instruction_set import vector_shape
from ...process.host import available_cores, data_caches

_ADVICE = "measure on such a machine, or with --measurer replay:FILE or simulated:FILE"


def detect() -> Target:
    """Return this machine's target, without probes, for kernels of one thread.

    `vector_bits` is the widest register that LLVM may use: 512 with AVX-512F, 256 with AVX,
    otherwise 128 (SSE, NEON). A CPU that reduces its clock for 512-bit code still gets 512, because
    schedules with narrower vectors are tried as well. `cores` is limited by affinity and cgroup
    quota.
    """
    triple, cpu, features = host_names()
    bits, registers = vector_shape(triple.partition("-")[0], features)
    return Target(
        triple=triple,
        cpu=cpu,
        features=tuple(sorted(features)),
        vector_bits=bits,
        vector_registers=registers,
        caches=data_caches(),
        cores=available_cores(),
    )


def refuse_foreign(target: Target) -> None:
    """Raise TargetError if code for `target` cannot run here."""
    host, _, have = host_names()
    if target.architecture != host.partition("-")[0]:
        raise TargetError(f"this machine ({host}) cannot run code for {target.triple}: {_ADVICE}")
    missing = sorted(set(target.features) - have)
    if missing:
        raise TargetError(
            f"this machine cannot run code for {target.cpu}: it lacks {', '.join(missing[:5])}; "
            f"{_ADVICE}"
        )
