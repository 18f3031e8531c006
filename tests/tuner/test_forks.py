"""A process that has run kernels of several threads forks: its children can run them too."""

from __future__ import annotations

import multiprocessing
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tilewright.schedules import operators
from tilewright.schedules.primitives import Parallel
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.computation import with_constants
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.backend.cpu.loading.elf import undefined_symbols
from tilewright.tuner.emit.emitted import emit_kernel
from tilewright.tuner.emit.header import c_header
from tilewright.tuner.emit.variant import Variant
from tilewright.tuner.machine.native_target import native_target

LONGEST_SECS = 60
"""A child that waits for threads it does not have waits for ever."""

PYTHON = """
import multiprocessing, os, sys
import numpy as np
from tilewright.schedules import operators
from tilewright.schedules.primitives import Parallel
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.computation import with_constants
from tilewright.tuner import compile
from tilewright.tuner.machine.native_target import native_target

workload = with_constants(operators.build("matmul", {"M": 33, "N": 65, "K": 9}), ["B"])
kernel = compile(workload, Trace((Parallel("s0.d0"),)), native_target(2, probe=False))
a, b = np.ones((33, 9), np.float32), np.ones((9, 65), np.float32)
packed = kernel.prepack(b)

def right(_=0):
    return bool((kernel(a, b) == 9).all() and (packed(a) == 9).all())

if sys.argv[1] == "called":
    assert right()
with multiprocessing.get_context("fork").Pool(3) as pool:
    assert all(pool.map(right, range(9)))
child = os.fork()
if not child:
    grandchild = os.fork() if right() else -1
    os._exit(not right() or (grandchild > 0 and os.waitpid(grandchild, 0)[1] != 0))
assert os.waitpid(child, 0)[1] == 0
assert right()
print("right")
"""


def rows_in_parallel() -> tuple[Workload, Variant]:
    workload = operators.build("matmul", {"M": 33, "N": 65, "K": 9})
    target = native_target(2, probe=False)
    return with_constants(workload, ["B"]), Variant("here", Trace((Parallel("s0.d0"),)), target)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="forks")
@pytest.mark.parametrize("before", ["called", "only loaded"])
def test_children_of_a_python_process_run_kernels(before: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PYTHON, before],
        capture_output=True,
        text=True,
        timeout=LONGEST_SECS,
        check=False,
        cwd=ROOT,
    )
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr


C = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "mm.h"
static float a[33 * 9], b[9 * 65], c[33 * 65];
static void *memory(size_t bytes) { return aligned_alloc(64, (bytes + 127) / 64 * 64); }
static int wrong(void) {
  void *packed = memory(mm_packed_bytes());
  for (int i = 0; i < 33 * 65; i++) c[i] = 0;
  if (mm(a, b, c, memory(mm_workspace_bytes()))) return 1;
  for (int i = 0; i < 33 * 65; i++) if (c[i] != 9) return 1;
  if (mm_prepack(b, packed)) return 1;
  return mm_prepacked(a, c, packed, memory(mm_prepacked_workspace_bytes()));
}
int main(int argc, char **argv) {
  int status;
  (void)argv;
  for (int i = 0; i < 33 * 9; i++) a[i] = 1;
  for (int i = 0; i < 9 * 65; i++) b[i] = 1;
  if (argc > 1 && wrong()) return 2;
  pid_t child = fork();
  if (!child) { alarm(20); _exit(wrong()); }
  if (waitpid(child, &status, 0) < 0 || status) return 3;
  return wrong();
}
"""


@pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64", reason="links and runs x86 code"
)
@pytest.mark.parametrize("arguments", [[], ["call before"]])
def test_children_of_a_c_program_run_kernels(arguments: list[str], tmp_path: Path) -> None:
    workload, variant = rows_in_parallel()
    kernel = emit_kernel(workload, [variant], "mm")
    (tmp_path / "mm.o").write_bytes(kernel.object_bytes)
    (tmp_path / "mm.h").write_text(c_header(workload, kernel))
    (tmp_path / "main.c").write_text(C)
    words = ["cc", "-D_GNU_SOURCE", "-Wall", "-Werror", "main.c", "mm.o", "-fopenmp", "-o", "main"]
    subprocess.run(words, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main", *arguments], timeout=LONGEST_SECS, check=False)
    assert done.returncode == 0


def test_only_a_kernel_of_several_threads_needs_the_libraries_of_threads() -> None:
    workload, variant = rows_in_parallel()
    threads = {"pthread_atfork", "omp_set_max_active_levels", "GOMP_parallel"}
    for trace, wanted in ((variant.trace, threads), (Trace(), set[str]())):
        kernel = emit_kernel(workload, [Variant("here", trace, variant.target)], "mm")
        assert threads & set(undefined_symbols(kernel.object_bytes)) == wanted
