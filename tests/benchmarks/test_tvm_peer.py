"""TVM gets the computation we have. Needs TVM, so it is skipped in the environment of the project:
run it by an interpreter with TVM and pytest."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers import numpy_peer
from benchmarks.suite.check_extents import sizes_at
from benchmarks.suite.contestant import make_inputs
from benchmarks.suite.registry import every_case, workload_of
from benchmarks.suite.shelf import Shelf
from benchmarks.tvm_peer import Translation

tvm = pytest.importorskip("tvm")

NAMES = [
    "mm_64x64x64", "bertB_ffn1", "R50_01_b1", "GRP_2_b1", "DIL_2_b1", "C3D_1_b1", "conv_1x7",
    "T2D_1_b1", "R50_pool_b1", "CAP_1_b1", "MB2_dw1", "TBS_0_b1", "ln_512x1024", "NRM_0_b1",
    "five-point stencil", "gated unit",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_tvm_computes_the_workload(name: str) -> None:
    case = every_case()[name]
    sizes = sizes_at(case, 4, mixed=True)
    workload = workload_of(case, sizes)
    built = tvm.compile(Translation(workload).function(), target="llvm")
    inputs = make_inputs(workload.inputs, 3, Shelf())
    found = Shelf().array(workload.output_tensors[0].shape)
    built["main"](*(tvm.runtime.from_dlpack(a) for a in (*inputs, found)))
    expected = np.empty(found.shape)
    numpy_peer(case.peer, case.epilogue, [a.astype(float) for a in inputs], expected, sizes)()
    np.testing.assert_allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
