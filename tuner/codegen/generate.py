"""Generation of LLVM text from a lowered nest: the entry point of the code generator."""

from __future__ import annotations

from tilewright.schedules.lowering.storage import plan_storage
from tilewright.schedules.nest.loop_ir import Nest
from tilewright.schedules.primitives.tensorize import check_target
from tilewright.schedules.target import Target

from .module import GeneratedModule, ModuleText
from .nest_writer import NestWriter
from .prepack import write_with_constants


def generate(nest: Nest, target: Target, symbol: str) -> GeneratedModule:
    """Return the module with the kernel `symbol`.

    The same nest gives the same text. Raise ScheduleError if the workspace or the stack is too
    large, or if a loop uses an instruction that `target` does not have.
    """
    check_target(nest, target)
    module = ModuleText(target)
    if any(tensor.constant for tensor in nest.inputs):
        return write_with_constants(nest, module, symbol)
    storage = plan_storage(nest)
    writer = NestWriter(nest, module, symbol, storage)
    writer.write_kernel()
    size = storage.workspace.total_bytes(target.threads)
    return GeneratedModule(module.text(), size, module.uses_openmp)
