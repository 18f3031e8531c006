"""Translation of LLVM IR text to object code or assembly, through llvmlite.

The generated text already has its final loop structure, so the pass list is short: stack slots
become values, common subexpressions are eliminated, and control flow is simplified. LLVM neither
vectorises nor unrolls loops, because the schedule has decided both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tilewright.schedules.record import Toolchain
from tilewright.schedules.target import Target

from ..codegen.version import CODEGEN_VERSION
from ..isa.instruction_set import feature_text


def toolchain() -> Toolchain:
    """Return the versions of the tools that generate code in this process."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return Toolchain(CODEGEN_VERSION, llvmlite.__version__, version)


@lru_cache(maxsize=1)
def host_names() -> tuple[str, str, frozenset[str]]:
    """Return triple, CPU and features of this machine, as LLVM names them."""
    features = llvm.get_host_cpu_features()
    return (
        str(llvm.get_default_triple()),
        str(llvm.get_host_cpu_name()),
        frozenset(name for name, on in features.items() if on),
    )


def host_target_machine() -> Any:
    """Return a new code generator for code that runs in this process. The caller owns it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )


@lru_cache(maxsize=1)
def _initialise() -> None:
    """Load all back ends. LLVM's options are per process.

    Machine sinking is disabled. It moves the multiply-adds of unconditional rows below the branches
    of conditional ones, but not their loads, which are then spilled: a padded convolution with an
    unrolled window took 2.2 times as long. Other kernels take the same time with and without it.
    """
    llvm.set_option("tilewright", "-disable-machine-sink")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def llvm_target(triple: str) -> Any:
    """Return LLVM's back end for a triple. Raise RuntimeError if LLVM has none."""
    _initialise()
    return llvm.Target.from_triple(triple)


@lru_cache(maxsize=8)
def _machine(triple: str, cpu: str, features: tuple[str, ...], opt: int) -> Any:
    return llvm_target(triple).create_target_machine(
        cpu=cpu,
        features=feature_text(triple.partition("-")[0], features),
        opt=opt,
        reloc="pic",
        codemodel="default",
    )


def target_machine(target: Target, opt: int = 3) -> Any:
    """Return LLVM's code generator for `target`. Raise RuntimeError for an unknown triple."""
    return machine_for(target.triple, target.cpu, target.features, opt)


def machine_for(triple: str, cpu: str, features: Sequence[str], opt: int = 3) -> Any:
    """Return LLVM's code generator for a CPU, given by LLVM's names."""
    return _machine(triple, cpu, tuple(sorted(features)), opt)


def optimised(ir_text: str, target: Target) -> Any:
    """Return the module for `target`, parsed, verified and simplified. Raise RuntimeError with
    LLVM's message if the text is not valid."""
    return cleaned(ir_text, target_machine(target))


def cleaned(ir_text: str, machine: Any) -> Any:
    """Return the module for the CPU of `machine`, parsed, verified and simplified."""
    _initialise()
    module = llvm.parse_assembly(ir_text)
    module.verify()
    builder, passes = _pass_manager(machine)
    passes.run(module, builder)
    return module


def linked(modules: Sequence[Any], machine: Any) -> bytes:
    """Link several modules to one, and return its object code. The modules cannot be used
    afterwards.

    The code is for `machine`, except for functions that have CPU attributes. Only symbols of the
    first module are exported.
    """
    first, *others = modules
    exported = [
        f.name for f in first.functions if not f.is_declaration and f.linkage.name == "external"
    ]
    for other in others:
        first.link_in(other)
    for function in first.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    options = llvm.PipelineTuningOptions(speed_level=0)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(first, llvm.create_pass_builder(machine, options))
    return bytes(machine.emit_object(first))


def assembly_of(module: Any, target: Target) -> str:
    """Return the assembly of a module. The module cannot be used afterwards."""
    return str(target_machine(target).emit_assembly(module))


def _pass_manager(machine: Any) -> tuple[Any, Any]:
    options = llvm.PipelineTuningOptions(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_code_elimination_pass()
    return builder, passes


def emit_object(ir_text: str, target: Target) -> bytes:
    """Return position-independent object code (ELF on Linux). The same text gives the same
    bytes."""
    return bytes(target_machine(target).emit_object(optimised(ir_text, target)))


def emit_assembly(ir_text: str, target: Target) -> str:
    """Return the assembly text. `target` may be any target for which LLVM has a back end."""
    return assembly_of(optimised(ir_text, target), target)
