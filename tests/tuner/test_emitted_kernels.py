"""Objects with variants for many CPUs: each is the code that was measured, any of them is right,
and a CPU that can run none is told so."""

from __future__ import annotations

import ctypes
import json
import platform
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.backend.cpu.loading.elf import undefined_symbols, writable_memory
from tilewright.tuner.compiling import deadline_compile as compiling
from tilewright.tuner.emit import emitted
from tilewright.tuner.emit.emitted import BuiltVariant, EmittedKernel, emit_kernel, used_features
from tilewright.tuner.emit.header import argument_names, c_header
from tilewright.tuner.emit.kernel import generated
from tilewright.tuner.emit.object_code import emit_assembly
from tilewright.tuner.emit.variant import Variant
from tilewright.tuner.isa.x86 import asks_cpu, switches
from tilewright.tuner.machine import x86_levels
from tilewright.tuner.machine.native_target import load_target, native_target
from tilewright.tuner.machine.x86_levels import level_target
from tilewright.tuner.search.default import default_trace

needs_cc = pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64", reason="links and runs x86 code"
)

WORKLOADS = (
    "matmul:M=17,N=33,K=13",
    "softmax_mn:M=5,N=77",
    "matmul:M=9,N=20,K=11,dtype=i8",
)
NEON = ROOT / "examples" / "targets" / "neoverse-n1.json"


@cache
def chosen(workload: Workload, target: Target) -> Trace:
    return default_trace(workload, target)


def variants(workload: Workload, targets: Sequence[Target]) -> list[Variant]:
    return [Variant(t.cpu, chosen(workload, t), t) for t in targets]


def levels(threads: int = 1) -> list[Target]:
    """What this machine can run, the most capable first."""
    native = native_target(threads, probe=False)
    known = [level_target(name, threads) for name in reversed(x86_levels.LEVELS)]
    return [native, *(t for t in known if set(t.features) <= set(native.features))]


def linked(kernel: EmittedKernel, folder: Path, name: str = "kernel") -> ctypes.CDLL:
    """The object in a shared library, as a C compiler links it."""
    (folder / f"{name}.o").write_bytes(kernel.object_bytes)
    words = ["cc", "-shared", f"{name}.o", "-fopenmp", "-o", f"{name}.so"]
    subprocess.run(words, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / f"{name}.so"))
    library.mm_variant.restype = ctypes.c_char_p
    library.mm_workspace_bytes.restype = ctypes.c_size_t
    return library


def arrays(workload: Workload) -> tuple[list[Any], Any, Any]:
    """Inputs, what they give, and where to write it."""
    rng = np.random.default_rng(3)
    inputs = [rng.integers(-4, 5, t.shape).astype(t.dtype.numpy) for t in workload.inputs]
    (expected,) = evaluate(workload, inputs)
    return inputs, expected, np.full(expected.shape, 77, workload.output_tensors[0].dtype.numpy)


def call(library: ctypes.CDLL, inputs: Sequence[Any], out: Any, bytes_: int) -> int:
    room = np.zeros(bytes_ + 64, np.uint8)
    workspace = room.ctypes.data + -room.ctypes.data % 64
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, out)]
    return int(library.mm(*pointers, ctypes.c_void_p(workspace)))


@pytest.mark.parametrize("spelling", WORKLOADS)
@pytest.mark.parametrize("cpu", ["native", *x86_levels.LEVELS])
def test_only_used_features_give_the_same_instructions(spelling: str, cpu: str) -> None:
    """So what is linked is what was measured, and `needs` leaves nothing out."""
    workload, target = parse_workload(spelling), load_target(cpu, probe=False)
    if not asks_cpu(target):
        pytest.skip("not an x86 machine")
    text = generated(workload, chosen(workload, target), target, "mm").text
    used = used_features(text, target)
    assert used is not None
    alone = emitted.attributed(text, target.cpu, switches(used))
    assert emit_assembly(alone, level_target("x86-64")) == emit_assembly(text, target)
    if cpu == "x86-64":
        assert not used


@needs_cc
@pytest.mark.parametrize(
    ("spelling", "threads"), [*((spelling, 1) for spelling in WORKLOADS), (WORKLOADS[0], 2)]
)
def test_each_variant_and_all_of_them_are_right(
    spelling: str, threads: int, tmp_path: Path
) -> None:
    workload = parse_workload(spelling)
    inputs, expected, out = arrays(workload)
    made = variants(workload, levels(threads))
    sets = [made, *([variant] for variant in made)]
    sizes = []
    for number, few in enumerate(sets):
        kernel = emit_kernel(workload, few, "mm")
        library = linked(kernel, tmp_path, f"k{number}")
        assert library.mm_variant() == few[0].label.encode()
        assert library.mm_supported() == 1
        assert library.mm_workspace_bytes() == kernel.workspace_bytes
        out.fill(77)
        assert call(library, inputs, out, kernel.workspace_bytes) == 0
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
        sizes.append(kernel.workspace_bytes)
    assert sizes[0] == max(sizes[1:])


@needs_cc
def test_a_cpu_that_lacks_a_feature_gets_the_next_variant_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody makes CPUs with XOP any more: a variant that claims to need it runs nowhere."""
    workload = parse_workload(WORKLOADS[0])
    inputs, expected, out = arrays(workload)
    native, plain = native_target(probe=False), level_target("x86-64")
    if "xop" in native.features:
        pytest.skip("a CPU with XOP")

    def claims(text: str, target: Target) -> tuple[str, ...]:
        return ("xop",) if target.key == native.key else ()

    monkeypatch.setattr(emitted, "used_features", claims)
    both = linked(emit_kernel(workload, variants(workload, [native, plain]), "mm"), tmp_path, "two")
    assert both.mm_variant() == b"x86-64"
    assert call(both, inputs, out, 1 << 16) == 0
    np.testing.assert_array_equal(out, expected)

    one = linked(emit_kernel(workload, variants(workload, [native]), "mm"), tmp_path, "one")
    out.fill(77)
    assert (one.mm_supported(), one.mm_variant()) == (0, b"none")
    assert call(one, inputs, out, 1 << 16) == 2
    assert (out == 77).all()


@needs_cc
def test_threads_that_ask_first_at_the_same_time_agree(tmp_path: Path) -> None:
    workload = parse_workload(WORKLOADS[0])
    inputs, expected, out = arrays(workload)
    kernel = emit_kernel(workload, variants(workload, levels()), "mm")
    library = linked(kernel, tmp_path)
    outs = [out.copy() for _ in range(8)]
    barrier = threading.Barrier(len(outs))

    def work(mine: Any) -> None:
        barrier.wait()
        assert call(library, inputs, mine, kernel.workspace_bytes) == 0

    threads = [threading.Thread(target=work, args=(mine,)) for mine in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine in outs:
        np.testing.assert_array_equal(mine, expected)


PREPACKED = """
#include <stdio.h>
#include <stdlib.h>
#include "mm.h"
static void *memory(size_t bytes) { return aligned_alloc(64, (bytes + 127) / 64 * 64); }
int main(void) {
  static float a[17 * 13], b[13 * 33], c[17 * 33], d[17 * 33];
  for (int i = 0; i < 17 * 13; i++) a[i] = (float)(i % 3);
  for (int i = 0; i < 13 * 33; i++) b[i] = (float)(i % 4);
  void *packed = memory(mm_packed_bytes()), *less = memory(mm_prepacked_workspace_bytes());
  if (mm(a, b, c, memory(mm_workspace_bytes())) || mm_prepack(b, packed)) return 2;
  if (mm_prepacked(a, d, packed, less)) return 3;
  for (int i = 0; i < 17 * 33; i++) if (c[i] != d[i]) return 1;
  for (int j = 0; j < 33; j++) {
    float sum = 0;
    for (int k = 0; k < 13; k++) sum += a[16 * 13 + k] * b[k * 33 + j];
    if (sum != c[16 * 33 + j]) return 4;
  }
  puts(mm_variant());
  return 0;
}
"""


@needs_cc
@pytest.mark.parametrize("language", ["c99", "c++11"])
def test_constants_are_packed_by_the_variant_that_reads_them(language: str, tmp_path: Path) -> None:
    workload = parse_workload(WORKLOADS[0], constants=["B"])
    made = variants(workload, levels())
    kernel = emit_kernel(workload, made, "mm")
    (tmp_path / "mm.o").write_bytes(kernel.object_bytes)
    (tmp_path / "mm.h").write_text(c_header(workload, kernel))
    (tmp_path / "main.c").write_text(PREPACKED)
    compiler = ["c++", "-x", "c++"] if language == "c++11" else ["cc", "-D_ISOC11_SOURCE"]
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    words = [f"-std={language}", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "main.c"]
    subprocess.run([*compiler, *words], cwd=tmp_path, check=True)
    subprocess.run(["cc", "main.o", "mm.o", "-fopenmp", "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, made[0].label)


@pytest.mark.parametrize("spelling", WORKLOADS)
def test_an_object_brings_one_number_that_changes_and_needs_no_library(spelling: str) -> None:
    workload = parse_workload(spelling)
    targets = [level_target(name) for name in ("x86-64-v3", "x86-64")]
    kernel = emit_kernel(workload, variants(workload, targets), "mm")
    assert (writable_memory(kernel.object_bytes) or "").startswith("4 writable bytes")
    assert set(undefined_symbols(kernel.object_bytes)) <= {
        "memcpy", "memset", "memmove", "_GLOBAL_OFFSET_TABLE_",
    }  # fmt: skip
    plain = emit_kernel(workload, variants(workload, targets[1:]), "mm")
    assert writable_memory(plain.object_bytes) is None


def test_the_bytes_are_the_same_wherever_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the helper process that long compilations are handed to."""
    workload = parse_workload(WORKLOADS[0])
    made = variants(workload, [level_target(name) for name in ("x86-64-v4", "x86-64-v3", "x86-64")])
    here = emit_kernel(workload, made, "mm", compiling.build_by_deadline)
    assert here == emit_kernel(workload, made, "mm")
    monkeypatch.setattr(compiling, "MAX_INLINE_LINES", 0)
    assert here == emit_kernel(workload, made, "mm", compiling.build_by_deadline)
    assert here != emit_kernel(workload, made[1:], "mm")


def test_a_cpu_that_cannot_be_asked_has_one_variant_and_a_header_that_says_so() -> None:
    workload = parse_workload(WORKLOADS[0])
    target = load_target(str(NEON), probe=False)
    kernel = emit_kernel(workload, variants(workload, [target]), "mm")
    (variant,) = kernel.variants
    assert not variant.checked
    assert set(variant.needs) == set(target.features)
    header = c_header(workload, kernel)
    assert "neoverse-n1" in header
    assert "cannot check" in header
    assert not writable_memory(kernel.object_bytes)


def test_features_that_cannot_be_shown_are_all_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of the assembly that misses something costs precision, never safety."""
    workload, target = parse_workload(WORKLOADS[0]), level_target("x86-64-v3")
    monkeypatch.setattr(emitted, "features_in", lambda text, available: frozenset())
    kernel = emit_kernel(workload, variants(workload, [target]), "mm")
    assert {"avx2", "fma", "bmi2", "movbe", "sse4.2"} <= set(kernel.variants[0].needs)


def test_levels_are_targets_that_hold_each_other() -> None:
    targets = [level_target(name) for name in x86_levels.LEVELS]
    for less, more in pairwise(targets):
        assert set(less.features) < set(more.features)
    from_file = load_target(str(NEON.parent / "x86-64-v3.json"), probe=False)
    assert from_file.key == level_target("x86-64-v3").key
    assert load_target("x86-64-v3", 2, probe=False) == level_target("x86-64-v3", 2)
    assert level_target("x86-64", 64).cores >= 64


def test_the_header_names_each_variant_with_what_it_needs() -> None:
    workload = parse_workload(WORKLOADS[0])
    kernel = EmittedKernel(
        b"", "mm", "x86_64-unknown-linux-gnu",
        (BuiltVariant("x86-64-v3", "x86-64-v3", ("avx", "avx2", "fma"), checked=True,
                      record_key="sha256:abc"),
         BuiltVariant("x86-64", "x86-64", (), checked=True)),
        0, 1, uses_openmp=False,
    )  # fmt: skip
    header = c_header(workload, kernel)
    assert " * x86-64-v3\n * needs: avx2 fma\n * record: sha256:abc\n" in header
    assert " * x86-64\n * needs: nothing beyond the architecture\n * record: none" in header
    one = replace(kernel, variants=kernel.variants[:1])
    assert " * CPU: x86-64-v3 (x86_64" in c_header(workload, one)


@pytest.mark.parametrize(
    "name", ["NULL", "I", "linux", "__LINE__", "_Pragma", "thread_local", "co_await", "SIZE_MAX"]
)
def test_a_tensor_may_be_called_what_c_calls_something_else(name: str) -> None:
    text = json.dumps(parse_workload("matmul:M=4,N=4,K=4").to_json()).replace('"A"', f'"{name}"')
    first, *_ = argument_names(Workload.from_json(json.loads(text)))
    assert re.fullmatch(r"t_[A-Za-z]+(_[A-Za-z]+)*", first)


def test_usual_names_stay_as_they_are() -> None:
    assert argument_names(parse_workload("matmul:M=4,N=4,K=4"))[:2] == ("A", "B")
