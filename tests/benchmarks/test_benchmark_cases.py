"""Peers compute what the workload says, and results survive an interruption."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import numpy_peer, numpy_variants
from benchmarks.suite.cases import EXPRESSIONS, EXTENTS, GEMMS, OPERATORS
from benchmarks.suite.check_extents import sizes_at
from benchmarks.suite.contestant import make_inputs
from benchmarks.suite.crew import RaceError
from benchmarks.suite.goals import figures, geomean, judge
from benchmarks.suite.operator_suite import constant_cases, heavy_cases, suite_cases
from benchmarks.suite.race import build_library
from benchmarks.suite.registry import every_case, workload_of
from benchmarks.suite.results import Result, ResultsFile
from benchmarks.suite.shelf import Shelf
from benchmarks.windows import Windows
from tests.support.peers.racing import record_variants
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.computation import with_constants

CLASSIC = [c.name for c in (*GEMMS.values(), *OPERATORS, *EXPRESSIONS)]


def suite_examples() -> list[str]:
    """A case of the suite for each way of computing: operator, epilogue, names of sizes."""
    chosen: dict[tuple[str, str, tuple[str, ...]], str] = {}
    for case in suite_cases():
        names = tuple(name for name in case.sizes if name not in ("dilation", "N"))
        chosen.setdefault((case.peer, case.epilogue, names), case.name)
    return list(chosen.values())


COMPARED = [*CLASSIC, *suite_examples()]


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("mixed", [False, True])
def test_a_peer_computes_the_workload(name: str, mixed: bool) -> None:
    case = every_case()[name]
    sizes = sizes_at(case, EXTENTS.index(7), mixed)
    workload = workload_of(case, sizes)
    inputs = [a.astype(np.float64) for a in make_inputs(workload.inputs, 3, Shelf())]
    found = np.full(workload.output_tensors[0].shape, np.nan)
    numpy_peer(case.peer, case.epilogue, inputs, found, sizes)()
    (expected,) = evaluate(workload, [a.astype(np.float32) for a in inputs])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", COMPARED)
def test_every_way_of_a_library_computes_what_numpy_does(name: str, constant: bool) -> None:
    """Each is asked alone: one that fails would be left out of the races without a word here."""
    case = every_case()[name]
    sizes = sizes_at(case, EXTENTS.index(13), mixed=True)
    workload = workload_of(case, sizes)
    inputs = make_inputs(workload.inputs, 3, Shelf())
    shape = workload.output_tensors[0].shape
    expected = np.empty(shape)
    exact = [a.astype(np.float64) for a in inputs]
    numpy_peer(case.peer, case.epilogue, exact, expected, sizes)()
    limit = 2e-5 * max(float(np.abs(expected).max()), 1.0)
    output = np.empty(shape, np.float32)
    variants = numpy_variants(case.peer, case.epilogue, inputs, output, sizes, constant=constant)
    for variant in variants:
        output.fill(np.nan)
        variant.prepare()()
        np.testing.assert_allclose(output, expected, atol=limit, rtol=0, err_msg=variant.name)


WAYS: dict[str, set[str]] = {
    "matmul": {"torch.mm", "linear", "oneDNN linear"},
    "matmul_nt": {"torch.mm", "linear", "oneDNN linear", "oneDNN linear, operands exchanged"},
    "matmul_tn": {"torch.mm", "linear", "oneDNN linear", "oneDNN linear, operands exchanged"},
    "gemv": {"torch.mv", "linear", "oneDNN linear"},
    "batch_matmul": {"torch.bmm", "torch.mm for each", "oneDNN linear for each"},
    "batch_matmul_nt": {"torch.bmm", "torch.mm for each", "oneDNN linear for each"},
    "transpose_batch_matmul": {"torch.matmul", "oneDNN linear for each"},
    "transpose_batch_matmul_softmax": {"torch.matmul", "torch.softmax along 3, with out"},
    "attention_values": {"torch.matmul of views", "torch.bmm for each", "oneDNN linear for each"},
    "conv1d_nlc": {"conv1d", "as an image, oneDNN convolution", "as an image, oneDNN pointwise"},
    "conv2d_nhwc": {"conv2d", "oneDNN convolution", "oneDNN pointwise",
                    "oneDNN convolution, weights channels last"},
    "conv3d_ndhwc": {"conv3d", "oneDNN convolution", "oneDNN pointwise"},
    "conv2d_nhwc_bn_relu": {"oneDNN pointwise", "element-wise, addcmul"},
    "conv2d_capsule_nhwijc": {"oneDNN pointwise", "with one more axis, oneDNN pointwise"},
    "conv2d_transpose_nhwc": {"conv_transpose2d", "oneDNN pointwise"},
    "depthwise_conv2d_nhwc": {"conv2d", "oneDNN convolution", "oneDNN pointwise"},
    "max_pool2d_nhwc": {"max_pool2d"},
    "global_avg_pool_nhwc": {"torch.mean along (1, 2)", "adaptive_avg_pool2d along (1, 2)"},
    "softmax_mn": {"torch.softmax along 1", "torch.softmax along 1, with out"},
    "layernorm_mn": {"layer_norm(1e-05)", "native_layer_norm(1e-05)"},
    "norm_bmn": {"torch.linalg.vector_norm along (1, 2)", "vecdot along (1, 2), sqrt_",
                 "torch.bmm along (1, 2), sqrt_"},
    "colsum_mn": {"torch.sum", "torch.mv with ones along (0,)"},
    "elementwise_add_relu": {"element-wise"},
    "transpose_mn": {"element-wise", "contiguous"},
    "scaled_product": {"torch.mm", "linear", "einsum", "oneDNN linear"},
    "row_dot": {"vecdot", "torch.bmm of rows", "einsum"},
    "three_way": {"einsum", "einsum cb,adc->adb, mul_, sum"},
    "tensor_product": {"torch.matmul", "einsum"},
    "max_plus": {"one step of the reduction at a time"},
    "l1_distance": {"torch.cdist(1)"},
    "stencil": {"conv2d with a constant kernel"},
    "logsumexp": {"torch.logsumexp along (1,)"},
    "cost_volume": {"torch.matmul of views"},
    "gated": {"element-wise"},
}  # fmt: skip
"""What a practised user asks PyTorch for: every computation's ways must work."""


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", COMPARED)
def test_every_way_of_pytorch_is_found(
    name: str, constant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from tilewright.peers.torch_peer import peer as torch_peer

    case = every_case()[name]
    sizes = sizes_at(case, EXTENTS.index(13), mixed=True)
    workload = workload_of(case, sizes)
    weights = [tensor.name for tensor in workload.inputs[1:2]]
    if constant:
        workload = with_constants(workload, weights)
    inputs = make_inputs(workload.inputs, 3, Shelf())
    expected = np.empty(workload.output_tensors[0].shape)
    exact = [a.astype(np.float64) for a in inputs]
    numpy_peer(case.peer, case.epilogue, exact, expected, sizes)()
    raced = record_variants(monkeypatch, torch_peer)
    peer = torch_peer.TorchPeer(workload.normalised(), inputs, 1, copy=False)
    peer.call()
    limit = 2e-5 * max(float(np.abs(expected).max()), 1.0)
    np.testing.assert_allclose(peer.outputs()[0], expected, atol=limit, rtol=0)
    wanted = WAYS[case.peer]
    is_pointwise = case.peer == "conv2d_nhwc" and Windows.of(case.sizes, 2).pointwise
    if is_pointwise and "groups" not in case.sizes:
        wanted = wanted | {"linear", "oneDNN linear"}
    if case.epilogue.startswith("bias"):
        wanted = {{"torch.mm": "torch.addmm"}.get(variant, variant) for variant in wanted}
    if constant:
        exchanged = "oneDNN linear, operands exchanged"
        wanted = {"oneDNN linear, weights packed" if w == exchanged else w for w in wanted}
    found = {variant.removeprefix("made before, ") for variant in raced}
    assert wanted <= found, (wanted - found, raced)


def test_names_are_unique() -> None:
    everyone = len(CLASSIC) + len(suite_cases()) + len(heavy_cases()) + len(constant_cases())
    assert len(every_case()) == everyone
    assert len(EXPRESSIONS) == 10


def test_mixed_sizes_bring_every_extent_to_every_axis() -> None:
    case = every_case()["matmul 512"]
    for axis in case.axes:
        assert {sizes_at(case, i, mixed=True)[axis] for i in range(9)} == set(EXTENTS)


def test_results_survive_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = ResultsFile(path)
    session = first.begin({"cpu": "any"})
    first.add(Result("a", "now", session, 0.0, {"failed": "no compiler"}))
    first.add(Result("a", "later", session, 0.0, {"x": 1}))
    first.add(Result("b", "later", session, 0.0, {"failed": "no compiler"}))
    with path.open("a") as file:
        file.write('{"key": "c", "at"')
    again = ResultsFile(path)
    assert again.rows == first.rows
    assert list(again.matching("")) == ["a"]
    assert again.sessions == {session: {"cpu": "any"}}


def test_what_was_not_measured_is_never_met(tmp_path: Path) -> None:
    judgements = judge(ResultsFile(tmp_path / "results.jsonl"))
    assert judgements
    assert all(each.met is None for each in judgements)


def test_arrays_lie_at_different_offsets_of_their_pages() -> None:
    shelf = Shelf()
    offsets = [shelf.array([5, 3]).ctypes.data % 4096 for _ in range(4)]
    assert len(set(offsets)) == 4
    assert all(offset % 64 == 0 for offset in offsets)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_arrays_of_a_race_may_lie_on_huge_pages() -> None:
    array = Shelf().array([1 << 20])
    flags = mapping_flags(array.ctypes.data)
    assert "sh" not in flags  # shared memory gets none, whatever it is advised
    assert "hg" in flags or not Path("/sys/kernel/mm/transparent_hugepage").exists()


def mapping_flags(address: int) -> list[str]:
    """What the kernel notes of the memory at `address` (proc(5), VmFlags)."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            low, high = (int(part, 16) for part in head.split("-"))
            inside = low <= address < high
        elif inside and head == "VmFlags:":
            return line.split()[1:]
    return []


def test_figures_and_means() -> None:
    data = {"a_b": 1, "c": {"d": 2.5}, "ok": True, "e": {}, "wrong": ["x is 1", "y"], "left": []}
    assert figures(data) == "a b 1, c (d 2.5), 2 wrong, the first: x is 1"
    assert geomean([0.5, 2.0]) == pytest.approx(1.0)


def test_a_bad_object_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    bad = tmp_path / "kernel.o"
    bad.write_text("not an object")
    with pytest.raises(RaceError, match=r"failed on .*kernel\.o"):
        build_library(bad, 3)
