"""`emit`: the same bytes every time, and a C program that links them gets the right numbers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.schedules.full_checks import NONE_KNOWN
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import objects
from tilewright.service.answers.stored import default_answer
from tilewright.service.cli import run
from tilewright.service.errors import UsageProblem
from tilewright.tuner.machine.native_target import native_target

MATMUL = "matmul:M=7,N=13,K=5"
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "mm.h"
int main(void) {
  float a[7 * 5], b[5 * 13], c[7 * 13];
  for (int i = 0; i < 7 * 5; i++) a[i] = (float)(i % 3);
  for (int i = 0; i < 5 * 13; i++) b[i] = (float)(i % 4);
  size_t bytes = (mm_workspace_bytes() + 63) / 64 * 64;
  void *workspace = bytes ? aligned_alloc(64, bytes) : NULL;
  if (mm(a, b, c, workspace)) return 2;
  for (int i = 0; i < 7; i++)
    for (int j = 0; j < 13; j++) {
      float sum = 0;
      for (int k = 0; k < 5; k++) sum += a[i * 5 + k] * b[k * 13 + j];
      if (sum != c[i * 13 + j]) return 1;
    }
  puts("right");
  return 0;
}
"""


@pytest.fixture
def emitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "out"
    words = ["emit", MATMUL, "--name", "mm", "--ll", "--asm", "--min-grade", "default", "--json"]
    assert run([*words, "-o", str(folder), "--db", str(tmp_path / "none.sqlite")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["grade"] == "default"
    assert [Path(f["path"]).name for f in document["files"]] == ["mm.o", "mm.h", "mm.ll", "mm.s"]
    return folder


def test_emitting_twice_gives_the_same_bytes(
    emitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again"
    words = ["emit", MATMUL, "--name", "mm", "--ll", "--asm", "--min-grade", "default"]
    assert run([*words, "-o", str(again), "--db", str(tmp_path / "none.sqlite")]) == 0
    assert "grade" in capsys.readouterr().out
    names = sorted(file.name for file in emitted.iterdir())
    assert names == sorted(file.name for file in again.iterdir())
    for name in names:
        assert (emitted / name).read_bytes() == (again / name).read_bytes()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_c_program_gets_the_right_numbers(emitted: Path) -> None:
    (emitted / "main.c").write_text(PROGRAM)
    subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Werror", "main.c", "mm.o", "-fopenmp", "-lm", "-o", "main"],
        cwd=emitted,
        check=True,
    )
    result = subprocess.run([emitted / "main"], capture_output=True, text=True, check=True)
    assert result.stdout == "right\n"


PREPACKED = """
#include <stdio.h>
#include <stdlib.h>
#include "mm.h"
static void *memory(size_t bytes) {
  return bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
}
int main(void) {
  float a[7 * 5], b[5 * 13], kept[5 * 13], c[7 * 13], d[7 * 13];
  for (int i = 0; i < 7 * 5; i++) a[i] = (float)(i % 3);
  for (int i = 0; i < 5 * 13; i++) b[i] = kept[i] = (float)(i % 4);
  void *packed = memory(mm_packed_bytes()), *workspace = memory(mm_workspace_bytes());
  void *less = memory(mm_prepacked_workspace_bytes());
  if (mm(a, b, c, workspace)) return 2;
  if (mm_prepack(b, packed)) return 3;
  if (mm_prepack(b, (char *)packed + 4) != 1 || mm_prepack(b, NULL) != 1) return 4;
  for (int i = 0; i < 5 * 13; i++) b[i] = -1;
  for (int times = 0; times < 3; times++) {
    for (int i = 0; i < 7 * 13; i++) d[i] = -1;
    if (mm_prepacked(a, d, packed, less)) return 5;
    if (mm_prepacked(a, d, NULL, less) != 1) return 6;
    for (int i = 0; i < 7 * 13; i++) {
      float sum = 0;
      for (int k = 0; k < 5; k++) sum += a[i / 13 * 5 + k] * kept[k * 13 + i % 13];
      if (sum != c[i] || sum != d[i]) return 1;
    }
  }
  puts("right");
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("language", ["c11", "c++11"])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_c_program_packs_a_constant_once(
    language: str, threads: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["emit", MATMUL, "--constant", "B", "--name", "mm", "--min-grade", "default"]
    db = str(tmp_path / "none.sqlite")
    assert run([*words, "--threads", threads, "-o", str(tmp_path), "--db", db]) == 0
    (tmp_path / "main.c").write_text(PREPACKED)
    compiler = ["c++", "-x", "c++"] if language == "c++11" else ["cc"]
    options = [f"-std={language}", "-Wall", "-Werror", "-c"]
    subprocess.run([*compiler, *options, "main.c"], cwd=tmp_path, check=True)
    link = ["cc", "main.o", "mm.o", "-fopenmp", "-lm", "-o", "main"]
    subprocess.run(link, cwd=tmp_path, check=True)
    result = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "right\n")
    again = tmp_path / "again"
    assert run([*words, "--threads", threads, "-o", str(again), "--db", db]) == 0
    for name in ("mm.o", "mm.h"):
        assert (tmp_path / name).read_bytes() == (again / name).read_bytes()


@pytest.mark.parametrize("name", ["2mm", "a b", "x" * 64, "", "../mm", "ü", "a-b", "a\n"])
def test_a_name_that_c_does_not_take_is_refused(name: str, workload: Workload) -> None:
    with pytest.raises(UsageProblem, match="C function name"):
        objects.symbol_name(name, workload)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("int", "keyword"), ("class", "keyword"), ("constexpr", "keyword"),
        ("_mm", "reserved"), ("mm__1", "reserved"), ("_Mm", "reserved"),
        ("printf", "C library"), ("main", "C library"), ("memcpy", "C library"),
        ("expf", "C library"), ("y0", "C library"), ("errno", "C library"),
        ("GOMP_parallel", "runtime"), ("omp_get_num_threads", "runtime"),
    ],
)  # fmt: skip
def test_a_name_of_somebody_else_is_refused_with_another_that_will_do(
    name: str, reason: str, workload: Workload
) -> None:
    with pytest.raises(UsageProblem, match=reason) as caught:
        objects.symbol_name(name, workload)
    advised = caught.value.advice.removesuffix(".").split()[-1]
    assert objects.symbol_name(advised, workload) == advised


def test_printf_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["emit", MATMUL, "--name", "printf", "--min-grade", "default", "--json"]
    assert run([*words, "-o", str(tmp_path / "o"), "--db", str(tmp_path / "none.sqlite")]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "bad_name"
    assert not (tmp_path / "o").exists()


def test_operators_keep_their_names(workload: Workload) -> None:
    from tilewright.schedules.operators import OPERATORS

    for name in OPERATORS:
        assert objects.symbol_name(None, workload.named(f"{name}:M=1")) == name
    assert objects.symbol_name(None, workload.named("exp:M=1")) == "kernel_exp"
    assert objects.symbol_name(None, workload.named("_a__b:M=1")) == "kernel_a_b"


def test_a_name_is_made_from_the_operator(workload: Workload) -> None:
    assert objects.symbol_name(None, workload) == "matmul"
    assert objects.symbol_name(None, workload.named("for")) == "kernel_for"
    assert objects.symbol_name(None, workload.named("")) == "kernel"
    long_name = objects.symbol_name(None, workload.named("C[i,j] += " + "A" * 100))
    assert objects.symbol_name(long_name, workload) == long_name


def test_a_name_cannot_leave_the_comment_it_stands_in(workload: Workload) -> None:
    target = native_target(probe=False)
    named = workload.named("x */ int evil(void); /*")
    variant = objects.variant_of(default_answer(named, target, NONE_KNOWN), target)
    [_, header] = objects.build(named, variant, "mm", ll=False, asm=False)
    comment, end, _ = header.data.decode().partition("*/")
    assert end
    assert "evil" in comment


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    words = ["emit", MATMUL, "-o", str(tmp_path / "file" / "out"), "--min-grade", "default"]
    assert run([*words, "--db", str(tmp_path / "none.sqlite")]) == 2
    assert "cannot write to" in capsys.readouterr().err
