"""The C header: nothing that others wrote can leave its comment."""

from __future__ import annotations

import pytest

from schedules.operators import build
from schedules.target import Cache, Target
from tuner.codegen.header import c_header
from tuner.codegen.kernel import CompiledKernel

KERNEL = CompiledKernel(b"", "mm", 0, (4, 4, 4), 2, 1, uses_openmp=False)
EVIL = ["x */ int evil(void); /*", "**//", "/*/", "a\n*/ int evil(void);", "\\\n", "a\x00*\u2028/"]


def target(text: str) -> Target:
    return Target(
        triple=f"x86_64-{text}",
        cpu=text,
        features=(text, "avx2"),
        vector_bits=256,
        vector_registers=16,
        caches=(Cache(32768, 8),),
        cores=1,
    )


@pytest.mark.parametrize("text", EVIL)
def test_foreign_text_stays_in_its_comment(text: str) -> None:
    workload = build("matmul", M=1, N=1, K=1).named(text)
    plain = c_header(workload.named("x"), KERNEL, target("x"), record_key="x")
    header = c_header(workload, KERNEL, target(text), record_key=text)
    comment, end, code = header.partition("*/")
    assert end
    assert comment.count("/*") == 1
    assert code == plain.partition("*/")[2]
    assert comment.replace("\n", "").isprintable()
    assert comment.count("\n") == plain.partition("*/")[0].count("\n")
