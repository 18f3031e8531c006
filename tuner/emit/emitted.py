"""A kernel as an object for other programs: one or more variants, and functions that choose one.

Each variant is generated for one CPU. It is compiled with only the features that its code uses,
which are given as function attributes. The exported functions need no feature beyond the
architecture. Therefore one object serves many CPUs. On an unsupported CPU, it returns an error
instead of crashing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..codegen.module import GeneratedModule
from ..isa.instruction_set import feature_text, instructions
from ..isa.x86 import BASE_CPU, asks_cpu, features_in, switches
from .dispatch import DispatchVariant, Sizes, entries_text
from .kernel import generated
from .object_code import assembly_of, cleaned, linked, machine_for, optimised
from .variant import Variant

_DEFINE = re.compile(r"^define (.*) \{$", re.MULTILINE)
_NO_TRACE = Trace()


@dataclass(frozen=True, slots=True)
class BuiltVariant:
    """A compiled variant."""

    label: str
    cpu: str
    needs: tuple[str, ...]
    """The CPU features that its code uses."""
    checked: bool
    """Whether the object detects these features before it runs the code."""
    trace: Trace = _NO_TRACE
    """The trace of the `Variant`."""
    record_key: str = ""
    """The key of the record of the `Variant`."""


@dataclass(frozen=True, slots=True)
class EmittedKernel:
    """Object code for other programs, and the memory that its callers must provide. Each size is
    the maximum over all variants."""

    object_bytes: bytes
    symbol: str
    triple: str
    variants: tuple[BuiltVariant, ...]
    """The variants, in order of preference."""
    workspace_bytes: int
    threads: int
    uses_openmp: bool
    constants: tuple[int, ...] = ()
    packed_bytes: int = 0
    prepacked_workspace_bytes: int = 0

    @property
    def object_sha256(self) -> str:
        return hashlib.sha256(self.object_bytes).hexdigest()


Build: TypeAlias = Callable[[dict[str, Any]], tuple[bytes, list[tuple[str, ...]]]]
"""A function that builds object code from the document of `emit_kernel`. It returns the code, and
the CPU features that each variant needs."""


def build_object(document: dict[str, Any]) -> tuple[bytes, list[tuple[str, ...]]]:
    """Compile the variants of `document` and link them with the functions that choose one. Return
    the object code, and the features of each variant."""
    parts = [(part["text"], Target.from_json(part["target"])) for part in document["parts"]]
    first = parts[0][1]
    needs, modules = [], []
    for text, target in parts:
        used = used_features(text, target)
        needs.append(_claimed(target) if used is None else used)
        attributes = feature_text(target.architecture, needs[-1])
        modules.append(optimised(attributed(text, target.cpu, attributes), target))
    entry = document["entry"]
    choices = [
        DispatchVariant(label, symbol, need if asks_cpu(first) else ())
        for (label, symbol), need in zip(entry["choices"], needs, strict=True)
    ]
    sizes = Sizes(*entry["sizes"])
    text = entries_text(
        entry["symbol"],
        first.triple,
        choices,
        sizes,
        entry["inputs"],
        entry["outputs"],
        uses_openmp=entry["uses_openmp"],
    )
    cpu, features = (BASE_CPU, ()) if asks_cpu(first) else (first.cpu, first.features)
    base = machine_for(first.triple, cpu, features)
    return linked([cleaned(text, base), *modules], base), needs


def emit_kernel(
    workload: Workload,
    variants: Sequence[Variant],
    symbol: str,
    build: Build = build_object,
) -> EmittedKernel:
    """Return the object that defines `symbol`. `variants` are in order of preference.

    The same arguments give the same bytes on every machine. Raise ScheduleError if a trace is not
    legal.
    """
    names = [f"{symbol}.{number}" for number, _ in enumerate(variants)]
    modules = [
        generated(workload, variant.trace, variant.target, name)
        for variant, name in zip(variants, names, strict=True)
    ]
    constants = tuple(n for n, t in enumerate(workload.inputs) if t.constant)
    openmp = any(module.uses_openmp for module in modules)
    sizes = _sizes(modules, has_constants=bool(constants))
    document = {
        "parts": [
            {"text": module.text, "target": variant.target.to_json()}
            for module, variant in zip(modules, variants, strict=True)
        ],
        "entry": {
            "symbol": symbol,
            "choices": [[v.label, name] for v, name in zip(variants, names, strict=True)],
            "sizes": [sizes.workspace, sizes.packed, sizes.prepacked_workspace],
            "inputs": [tensor.constant for tensor in workload.inputs],
            "outputs": len(workload.output_tensors),
            "uses_openmp": openmp,
        },
    }
    object_bytes, needs = build(document)
    return EmittedKernel(
        object_bytes=object_bytes,
        symbol=symbol,
        triple=variants[0].target.triple,
        variants=tuple(
            BuiltVariant(
                v.label, v.target.cpu, tuple(need), asks_cpu(v.target), v.trace, v.record_key
            )
            for v, need in zip(variants, needs, strict=True)
        ),
        workspace_bytes=sizes.workspace,
        threads=max(v.target.threads for v in variants) if openmp else 1,
        uses_openmp=openmp,
        constants=constants,
        packed_bytes=sizes.packed or 0,
        prepacked_workspace_bytes=sizes.prepacked_workspace or 0,
    )


def used_features(ir_text: str, target: Target) -> tuple[str, ...] | None:
    """Return the CPU features that `target`'s code for `ir_text` uses, sorted.

    Return None if (1) `target` is not x86-64, or (2) LLVM would generate other instructions for a
    CPU that has only these features.
    """
    if not asks_cpu(target):
        return None
    full = assembly_of(optimised(ir_text, target), target)
    found = features_in(full, target.features)
    only = attributed(ir_text, target.cpu, switches(found))
    if assembly_of(optimised(only, target), target) != full:
        return None
    return tuple(sorted(found))


def attributed(ir_text: str, cpu: str, features: str) -> str:
    """Return the module with `cpu` and `features` as attributes of every function, so that it can
    be linked."""
    text = _DEFINE.sub(r"define \1 #0 {", ir_text)
    return f'{text}\nattributes #0 = {{ "target-cpu"="{cpu}" "target-features"="{features}" }}\n'


def _sizes(modules: Sequence[GeneratedModule], *, has_constants: bool) -> Sizes:
    workspace = max(module.workspace_bytes for module in modules)
    if not has_constants:
        return Sizes(workspace)
    return Sizes(
        workspace,
        max(module.packed_bytes for module in modules),
        max(module.prepacked_workspace_bytes for module in modules),
    )


def _claimed(target: Target) -> tuple[str, ...]:
    """Return all features of the target. They are used if the features of the code are not
    known."""
    return tuple(sorted(instructions(target) if asks_cpu(target) else target.features))
