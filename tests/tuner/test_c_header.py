"""The C header: nothing that others wrote can leave its comment."""

from __future__ import annotations

import pytest

from tilewright.schedules.operators import build
from tilewright.tuner.emit.emitted import BuiltVariant, EmittedKernel
from tilewright.tuner.emit.header import c_header

EVIL = ["x */ int evil(void); /*", "**//", "/*/", "a\n*/ int evil(void);", "\\\n", "a\x00*\u2028/"]


def kernel(text: str) -> EmittedKernel:
    variant = BuiltVariant(text, text, (text, "avx2"), checked=False, record_key=text)
    triple = f"x86_64-{text}"
    return EmittedKernel(b"", "mm", triple, (variant, variant), 0, 1, uses_openmp=False)


@pytest.mark.parametrize("text", EVIL)
def test_foreign_text_stays_in_its_comment(text: str) -> None:
    workload = build("matmul", M=1, N=1, K=1).named(text)
    plain = c_header(workload.named("x"), kernel("x"))
    header = c_header(workload, kernel(text))
    comment, end, code = header.partition("*/")
    assert end
    assert comment.count("/*") == 1
    assert code == plain.partition("*/")[2]
    assert comment.replace("\n", "").isprintable()
    assert comment.count("\n") == plain.partition("*/")[0].count("\n")
