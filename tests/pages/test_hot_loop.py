"""The hot loop of a listing: innermost, and the one that computes most."""

from __future__ import annotations

from tests.support.service.records import HOST
from tilewright.service.answers import objects
from tilewright.service.http.pages.hot_loop import HotLoop, hot_loop
from tilewright.service.resolve import workloads
from tilewright.tuner.search.default import default_trace

LISTING = """\
\t.text
kernel:
.LBB0_1:
\txorl\t%eax, %eax
.LBB0_2:
\tvmovups\t(%rdi), %ymm0
\tvmovups\t%ymm0, (%rsi)
\tjne\t.LBB0_2
.LBB0_3:                                # in a comment: jne .LBB0_1
\tvfmadd231ps\t(%rdi), %ymm1, %ymm0
\tvfmadd231ps\t32(%rdi), %ymm1, %ymm2
\taddq\t$64, %rdi
\tjb\t.LBB0_3
\tjmp\t.LBB0_1
\tjne\t.LBB0_9
.LBB0_9:
\tretq
"""


def test_the_innermost_loop_with_most_arithmetic_is_the_hot_one() -> None:
    assert hot_loop(LISTING) == HotLoop(first=8, last=12, instructions=4, arithmetic=2)


def test_what_never_jumps_back_has_none() -> None:
    assert hot_loop("f:\n\tvaddps %ymm0, %ymm1, %ymm2\n\tjne\t.L1\n.L1:\n\tretq\n") is None
    assert hot_loop("") is None


def test_the_loop_of_a_product_multiplies_and_adds() -> None:
    workload = workloads.workload_of("matmul:M=64,N=64,K=64")
    text = objects.shown(workload, default_trace(workload, HOST), HOST, "asm")
    found = hot_loop(text)
    assert found is not None
    assert found.arithmetic >= found.instructions / 4
    marked = "\n".join(text.splitlines()[found.first : found.last + 1])
    assert "vfmadd" in marked
