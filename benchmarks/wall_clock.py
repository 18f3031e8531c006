"""Does `--seconds` hold? Tunes workloads of every kind, hostile ones among them, as new processes.

    python benchmarks/wall_clock.py --seconds 5                  # all, one after the other
    python benchmarks/wall_clock.py --only sum --json out.jsonl

For each: wall time of the command from the outside, its exit code, what the report says its wall
time was, how many trials it made, and why it ended. A command that took longer than `--allowed`
(2 s more than its seconds, and one run), or ended without a reason, is marked; the exit code is
then 1. Every workload has a database of its own; the machine's probes are shared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

COMMAND = "import sys; from tilewright.service.cli import main; main(sys.argv[1:])"
KILLED_AFTER = 20
"""A command that takes this many times its seconds is not waited for."""

ALLOWED_MORE_SECS = 3.0

REFUSALS = ("not_verifiable:", "too_large:")
"""How a command ends that refuses a workload at once and says why, with exit code 2."""


def expr(text: str, *words: str) -> tuple[str, ...]:
    """Words of a command for index notation: tensors as `A=...`, ranges as `i:3`."""
    found = ["--expr", text]
    for word in words:
        found += ["--range", word.replace(":", "=")] if ":" in word else ["--tensor", word]
    return tuple(found)


def chain(stages: int, body: str, *tensors: str) -> tuple[str, ...]:
    """`stages` statements, each of the one before: `{y}` from `{x}`."""
    names = ["X", *(f"T{n}" for n in range(stages))]
    text = "; ".join(body.format(x=x, y=y, m=f"M{y}") for x, y in pairwise(names))
    return expr(text, *tensors)


SUM_OF_MANY = "Y[0] += f32(i)*X[0]"
GUARDED = "Y[i,j] += where(k <= j, X[i,k]*W[k,j], 0.0)"

WORKLOADS: dict[str, tuple[str, ...]] = {
    # ordinary ones
    "matmul 512": ("matmul:M=512,N=512,K=512",),
    "matmul 1024": ("matmul:M=1024,N=1024,K=1024",),
    "matmul odd": ("matmul:M=127,N=131,K=137",),
    "matmul_nt thin": ("matmul_nt:M=8,N=4096,K=4096",),
    "gemv": ("gemv:N=4096,K=4096",),
    "batch matmul": ("batch_matmul:B=16,M=128,N=128,K=64",),
    "conv2d": ("conv2d_nhwc:N=1,H=56,W=56,CI=64,CO=64,K=3,pad=1",),
    "conv2d bn relu": ("conv2d_nhwc_bn_relu:N=1,H=28,W=28,CI=128,CO=128,K=3,pad=1",),
    "conv2d 7x7": ("conv2d_nhwc:N=1,H=112,W=112,CI=3,CO=64,K=7,stride=2,pad=3",),
    "conv3d": ("conv3d_ndhwc:D=8,H=28,W=28,CI=16,CO=32,K=3,pad=1",),
    "depthwise": ("depthwise_conv2d_nhwc:H=112,W=112,C=32,K=3,pad=1",),
    "transposed conv": ("conv2d_transpose_nhwc:H=16,W=16,CI=64,CO=32,K=4,stride=2,pad=1",),
    "capsule": ("conv2d_capsule_nhwijc:H=14,W=14,CI=8,CO=8,K=3,pad=1",),
    "max pool": ("max_pool2d_nhwc:H=112,W=112,C=64,K=3,stride=2,pad=1",),
    "softmax": ("softmax_mn:M=512,N=512",),
    "softmax wide": ("softmax_mn:M=32,N=32000",),
    "attention scores": ("transpose_batch_matmul_softmax:batch=1,seq=128,heads=12,dim=64",),
    "layernorm": ("layernorm_mn:M=512,N=1024",),
    "norm": ("norm_bmn:B=1,M=1024,N=1024",),
    "column sums": ("colsum_mn:M=4096,N=1024",),
    "average pool": ("global_avg_pool_nhwc:N=8,H=28,W=28,C=256",),
    "add relu": ("elementwise_add_relu:M=2048,N=2048",),
    "transpose": ("transpose_mn:M=2048,N=2048",),
    # types
    "matmul i8": ("matmul:M=512,N=512,K=512,dtype=i8",),
    "matmul u8": expr("C[i,j] += i32(A[i,k])*i32(B[k,j])", "A=u8[512,512]", "B=u8[512,512]"),
    "matmul i64": expr("C[i,j] += A[i,k]*B[k,j]", "A=i64[256,256]", "B=i64[256,256]"),
    "matmul f16": ("matmul:M=512,N=512,K=512,dtype=f16",),
    "matmul bf16": ("matmul:M=512,N=512,K=512,dtype=bf16",),
    "matmul f64": ("matmul:M=512,N=512,K=512,dtype=f64",),
    "quantise": expr("Q[i,j] = i8(floor(X[i,j]*16.0+0.5))", "X=f32[1024,1024]"),
    "cast f16": expr("Y[i] = f16(X[i]*0.5)", "X=f32[1000003]"),
    # tiny ones
    "one element": expr("Y[i] = X[i]*2.0", "X=f32[1]"),
    "dot of 3": expr("Y[0] += X[i]*W[i]", "X=f32[3]", "W=f32[3]"),
    "matmul 1": ("matmul:M=1,N=1,K=1",),
    # large ones
    "matmul 2048": ("matmul:M=2048,N=2048,K=2048",),
    "matmul 4096": ("matmul:M=4096,N=4096,K=4096",),
    "matmul 4096 f64": ("matmul:M=4096,N=4096,K=4096,dtype=f64",),
    "matmul 4096 i8": ("matmul:M=4096,N=4096,K=4096,dtype=i8",),
    "copy 256 MiB": expr("Y[i] = X[i]*2.0", "X=f32[67108864]"),
    "conv2d large": ("conv2d_nhwc:N=16,H=112,W=112,CI=64,CO=64,K=3,pad=1",),
    # huge reductions
    "sum 2^31-1": expr(SUM_OF_MANY, "X=f32[1]", "i:2147483647"),
    "sum 2^28 i64": expr("Y[0] += i64(i)*X[0]", "X=i64[1]", "i:268435456"),
    "max of 2^28": expr("Y[0] max= f32(i)*X[0]", "X=f32[1]", "i:268435456"),
    "product of 2^26": expr("Y[0] *= X[0]+0.0*f32(i)", "X=f32[1]", "i:67108864"),
    "sum of sums": expr("T[j] += f32(i)*X[j]; Y[0] += T[j]", "X=f32[1024]", "i:1048576"),
    "exp sum": expr("Y[j] += exp(X[j]*f32(i)*-0.000001)", "X=f32[16]", "i:8388608"),
    # guards
    "guarded 1024": expr(GUARDED, "X=f32[1024,1024]", "W=f32[1024,1024]"),
    "guarded 512 i32": expr(
        "Y[i,j] += where(k <= j, X[i,k]*W[k,j], 0)", "X=i32[512,512]", "W=i32[512,512]"
    ),
    "banded": expr(
        "Y[i,j] += where(k >= i-8, where(k <= i+8, X[i,k]*W[k,j], 0.0), 0.0)",
        "X=f32[768,768]", "W=f32[768,768]",
    ),
    "prefix sums": expr("Y[i,j] += where(k <= j, X[i,k], 0.0)", "X=f32[256,4096]", "j:4096"),
    "inverse stft": expr(
        "Y[t] += where(t-128*f >= 0, where(t-128*f < 512,"
        " R[f,k]*sin(0.0122718463*f32(k)*f32(t-128*f)), 0.0), 0.0)",
        "R=f32[200,257]", "t:25600",
    ),
    "dft": expr(
        "Y[k] += X[t]*sin(0.0015339808*f32(k)*f32(t))", "X=f32[4096]", "k:4096"
    ),
    # many stages
    "40 products": chain(40, "{y}[i,j] += {x}[i,k]*W[k,j]", "X=f32[64,64]", "W=f32[64,64]"),
    "30 norms": chain(
        30, "{m}[i] += {x}[i,k]*{x}[i,k]; {y}[i,j] = {x}[i,j]*0.9+{m}[i]*0.001", "X=f32[64,64]"
    ),
    "60 sums": chain(60, "{y}[i,j] = {x}[i,j]*0.5+X[i,j]", "X=f32[256,256]"),
    "12 convolutions": chain(
        12, "{y}[i,j] += {x}[i+r-1,j+s-1]*W[r,s]", "X=f32[128,128]", "W=f32[3,3]"
    ),
    "8 softmaxes": chain(
        8,
        "{m}[i] max= {x}[i,k]; E{y}[i,j] = exp({x}[i,j]-{m}[i]); S{y}[i] += E{y}[i,k];"
        " {y}[i,j] = E{y}[i,j]/S{y}[i]",
        "X=f32[128,128]",
    ),
    # layouts and unusual forms
    "nhwc to nchw": expr("Y[n,c,h,w] = X[n,h,w,c]*2.0", "X=f32[1,56,56,64]"),
    "argmax": expr(
        "M[i] max= X[i,j]; A[i] min= where(X[i,j]==M[i], j, 100000)", "X=f32[1024,1000]"
    ),
    "distances": expr(
        "D[i,j] += (X[i,k]-W[j,k])*(X[i,k]-W[j,k])", "X=f32[1024,64]", "W=f32[1024,64]"
    ),
    "outer max": expr("Y[i,j] max= X[i,k]+W[k,j]", "X=f32[512,512]", "W=f32[512,512]"),
    "log sum exp": expr(
        "M[i] max= X[i,j]; S[i] += exp(X[i,j]-M[i]); Y[i] = log(S[i])+M[i]", "X=f32[4096,1024]"
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ending:
    """How one command ended. `told_secs` is what its report says; None where it has none."""

    name: str
    wall_secs: float
    exit_code: int | None
    reason: str
    trials: int = 0
    has_best: bool = False
    told_secs: float | None = None

    def faults(self, allowed_secs: float) -> list[str]:
        """What is not as promised."""
        found = []
        if self.wall_secs > allowed_secs:
            found.append(f"took more than {allowed_secs:g} s")
        if not self.reason:
            found.append("no reason")
        refused = self.exit_code == 2 and self.reason.startswith(REFUSALS)
        if self.exit_code not in (0, 1) and not refused:
            found.append(f"exit code {self.exit_code}")
        return found


def tuned(name: str, words: Sequence[str], seconds: float, more: Sequence[str]) -> Ending:
    """Tune a workload in a process of its own, with a database of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TILEWRIGHT_DB": f"sqlite:///{folder}/t.db",
        }
        command = [sys.executable, "-c", COMMAND, "tune", *words, "--json", *more]
        command += ["--seconds", f"{seconds:g}"]
        start = time.monotonic()
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True,
                timeout=KILLED_AFTER * seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Ending(name, time.monotonic() - start, None, "")
        wall_secs = time.monotonic() - start
    return _ending(name, wall_secs, done)


def _ending(name: str, wall_secs: float, done: subprocess.CompletedProcess[str]) -> Ending:
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        sys.stderr.write(f"{name}: no document; {last}\n")
        return Ending(name, wall_secs, done.returncode, "")
    if "error" in document:
        error = document["error"]
        return Ending(name, wall_secs, done.returncode, f"{error['code']}: {error['message']}")
    return Ending(
        name,
        wall_secs,
        done.returncode,
        document["stopped_because"],
        document["trials"]["total"],
        document["best"] is not None,
        document["wall_secs"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--allowed", type=float, help="wall seconds of a command")
    parser.add_argument("--only", default="", help="names that contain one of these, by commas")
    parser.add_argument("--json", type=Path, help="append a line for each")
    parser.add_argument("more", nargs="*", help="more words of the command, behind --")
    given = parser.parse_args()
    allowed_secs = given.allowed or given.seconds + ALLOWED_MORE_SECS
    subprocess.run(
        [sys.executable, "-c", COMMAND, "target", "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
    )  # fmt: skip  # so that the machine is probed once
    faulty = 0
    print(f"{'workload':18} {'wall':>6} {'told':>6} exit trials best  ended because")
    for name, words in WORKLOADS.items():
        if not any(word in name for word in given.only.split(",")):
            continue
        ending = tuned(name, words, given.seconds, given.more)
        faults = ending.faults(allowed_secs)
        faulty += bool(faults)
        told = "-" if ending.told_secs is None else f"{ending.told_secs:.2f}"
        print(
            f"{name:18} {ending.wall_secs:6.2f} {told:>6} {ending.exit_code!s:>4}"
            f" {ending.trials:6} {'yes' if ending.has_best else 'no':4}  {ending.reason[:150]}"
            + (f"   FAULT: {', '.join(faults)}" if faults else ""),
            flush=True,
        )
        if given.json is not None:
            with given.json.open("a") as file:
                file.write(json.dumps(asdict(ending)) + "\n")
    print(f"{faulty} with faults")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
