"""Rows of speed: matrix products in depth, then every operator and ten expressions."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.suite.cases import EXPRESSIONS, GEMMS, OPERATORS, Case
from benchmarks.suite.context import Context, Row
from benchmarks.suite.duel import tune_and_race
from benchmarks.suite.race import PEERS

SEEDS = (0, 1, 2)


def gemm_rows(context: Context) -> list[Row]:
    """512 and 1024 from three seeds on one core; the rest once."""
    seeds = SEEDS[:1] if context.quick else SEEDS
    plan = [(name, 1, seed) for seed in seeds for name in ("matmul 512", "matmul 1024")]
    if context.cores > 1:
        plan.append(("matmul 1024", 2, 0))
    plan += [("matmul 1000", 1, 0), ("matmul 127x131x137", 1, 0)]
    return [
        _row(
            context,
            f"gemm/{name}/{threads}t/seed{seed}",
            GEMMS[name],
            threads,
            64,
            seed,
            5.0,
            confirm=True,
        )
        for name, threads, seed in plan
    ]


def operator_rows(context: Context) -> list[Row]:
    return _both_thread_counts(context, "ops", OPERATORS)


def expression_rows(context: Context) -> list[Row]:
    return _both_thread_counts(context, "expressions", EXPRESSIONS)


def _both_thread_counts(context: Context, group: str, cases: tuple[Case, ...]) -> list[Row]:
    counts = (1, 2) if context.cores > 1 else (1,)
    return [
        _row(context, f"{group}/{case.name}/{threads}t", case, threads, 40, 0, 2.0)
        for threads in counts
        for case in cases
    ]


def _row(
    context: Context, key: str, case: Case, threads: int, trials: int, seed: int, seconds: float,
    *, confirm: bool = False,
) -> Row:  # fmt: skip
    if context.quick:
        trials, seconds = 4, 0.2
    run = partial(
        _run, key=key, case=case, threads=threads, trials=trials, seed=seed, seconds=seconds,
        confirm=confirm,
    )  # fmt: skip
    expected_secs = 4 + trials * 0.12 + seconds * (2 if confirm else 1)
    return Row(key, run, summary, expected_secs)


def _run(context: Context, **arguments: Any) -> dict[str, Any]:
    return tune_and_race(context, peers=PEERS, **arguments)


def summary(data: dict[str, Any]) -> str:
    """A row's figures in one line."""
    parts = [f"{data['gflops']:.1f} GFLOP/s", f"{data['of_peak']['median']:.2f} of the peak"]
    for peer in PEERS:
        side = data["race"].get(peer, {})
        parts.append(f"{side['ratio']['median']:.2f}x {peer}" if "ratio" in side else f"no {peer}")
    parts.append(f"{data['tune']['trials']['total']} trials in {data['process_secs']:.1f} s")
    return ", ".join(parts)
