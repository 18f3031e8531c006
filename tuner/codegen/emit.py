"""From LLVM IR text to object code or assembly, through llvmlite. No optimiser zoo.

The generated text already has its final loop structure, so the pass list is short and explicit:
stack slots become values, common subexpressions go, the control flow is tidied. There is no
auto-vectoriser and no unroller: what a schedule says is what is run.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from schedules.record import Toolchain
from schedules.target import Target

from .version import CODEGEN_VERSION


def toolchain() -> Toolchain:
    """What makes the code in this process."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return Toolchain(CODEGEN_VERSION, llvmlite.__version__, version)


@lru_cache(maxsize=1)
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@lru_cache(maxsize=8)
def _machine(triple: str, cpu: str, features: tuple[str, ...], opt: int) -> Any:
    _initialise()
    target = llvm.Target.from_triple(triple)
    enabled = ",".join(f if f[0] in "+-" else f"+{f}" for f in features)
    return target.create_target_machine(
        cpu=cpu, features=enabled, opt=opt, reloc="pic", codemodel="default"
    )


def target_machine(target: Target, opt: int = 3) -> Any:
    """LLVM's code generator for `target`; RuntimeError from LLVM for an unknown triple."""
    return _machine(target.triple, target.cpu, tuple(sorted(target.features)), opt)


def optimised(ir_text: str, target: Target) -> Any:
    """The parsed, verified, cleaned module. RuntimeError with LLVM's words if it is not valid."""
    _initialise()
    module = llvm.parse_assembly(ir_text)
    module.verify()
    builder, passes = _pass_manager(target)
    passes.run(module, builder)
    return module


def _pass_manager(target: Target) -> tuple[Any, Any]:
    options = llvm.PipelineTuningOptions(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(target_machine(target), options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_code_elimination_pass()
    return builder, passes


def emit_object(ir_text: str, target: Target) -> bytes:
    """Position-independent object code (ELF on Linux). The same text gives the same bytes."""
    return bytes(target_machine(target).emit_object(optimised(ir_text, target)))


def emit_assembly(ir_text: str, target: Target) -> str:
    """Assembly text for any target LLVM has a back end for."""
    return str(target_machine(target).emit_assembly(optimised(ir_text, target)))
