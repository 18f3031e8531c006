"""What is timed runs without anything that holds a library down, and says what it uses."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks.suite import crew
from benchmarks.suite.context import environment
from tilewright.peers.bench import _ContenderProcess, bench
from tilewright.peers.library_versions import described, numpy_libraries, torch_libraries
from tilewright.schedules import operators
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.process.environment import child_environment, clean_environment, steering
from tilewright.tuner.search.default import default_trace

HANDICAPS = {
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_L2_SIZE": "512",
    "GOTO_NUM_THREADS": "1",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "MKL_THREADING_LAYER": "SEQUENTIAL",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "DNNL_MAX_CPU_ISA": "SSE41",
    "ATEN_CPU_CAPABILITY": "default",
    "OMP_WAIT_POLICY": "passive",
    "OMP_THREAD_LIMIT": "1",
    "GOMP_SPINCOUNT": "0",
    "GOMP_CPU_AFFINITY": "0",
    "KMP_BLOCKTIME": "0",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F",
    "LRU_CACHE_CAPACITY": "1",
}
OTHERS = {"HOME": "/home/me", "PATH": "/bin", "OMPI_ROOT": "/opt", "TORCH_HOME": "/models"}


@pytest.mark.parametrize("name", HANDICAPS)
def test_what_holds_a_library_down_is_left_out(name: str) -> None:
    environ = {**OTHERS, name: HANDICAPS[name]}
    assert steering(environ) == {name: HANDICAPS[name]}
    assert clean_environment(environ, 2).get(name) != HANDICAPS[name]


def test_what_has_nothing_to_do_with_it_stays() -> None:
    assert steering(OTHERS) == {}
    assert clean_environment(OTHERS, 2).items() >= OTHERS.items()


def test_every_library_gets_the_same_threads() -> None:
    clean = clean_environment({"MKL_NUM_THREADS": "64"}, 2)
    counts = {name: value for name, value in clean.items() if name.endswith("_NUM_THREADS")}
    assert set(counts) >= {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
    assert set(counts.values()) == {"2"}
    assert clean["OMP_PROC_BIND"] == "close"
    assert clean_environment(clean, 2) == clean


def test_every_process_that_is_timed_has_a_clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in HANDICAPS.items():
        monkeypatch.setenv(name, value)
    assert not steering(environment(tmp_path)).keys() & HANDICAPS.keys()
    assert not steering(child_environment(2)).keys() & HANDICAPS.keys()
    with crew.Crew(tmp_path) as members:
        started = _environment(members.member("numpy", 2).pid)
    assert {n: v for n, v in started.items() if HANDICAPS.get(n) == v} == {}
    assert started["OPENBLAS_NUM_THREADS"] == "2"
    with _ContenderProcess(2, {}) as contender:
        in_bench = _environment(contender._process.pid)
    assert {n: v for n, v in in_bench.items() if HANDICAPS.get(n) == v} == {}
    names = [*clean_environment({}, 2), "GLIBC_TUNABLES"]
    assert [in_bench[name] for name in names] == [started[name] for name in names]


def _environment(pid: int) -> dict[str, str]:
    """The environment of a process that has just been started: for a moment it shows none."""
    process = psutil.Process(pid)
    found: dict[str, str] = {}
    while not found:
        time.sleep(0.001)
        found = process.environ()
    return found


def _core(environ: dict[str, str]) -> str | None:
    code = (
        "import json; from tilewright.peers.library_versions import numpy_libraries;"
        " print(json.dumps(numpy_libraries()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    found: str | None = json.loads(done.stdout).get("core")
    return found


def test_openblas_takes_the_kernels_of_this_processor_again() -> None:
    """The variable that halved NumPy's speed, as it was found in the environment."""
    held_down = {**clean_environment(os.environ, 1), "OPENBLAS_CORETYPE": "Haswell"}
    core = _core(clean_environment(held_down, 1))
    if core is None:
        pytest.skip("NumPy does not compute with OpenBLAS here")
    assert _core(held_down) == "Haswell"
    never_set = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    assert core == _core(never_set), "what it takes by itself"


def test_libraries_say_what_they_use() -> None:
    found = numpy_libraries()
    assert found["numpy"] == np.__version__
    assert found["blas"] in described(found)
    torch = torch_libraries()
    if importlib.util.find_spec("torch") is None:
        assert torch == {}
    else:
        assert torch["torch"] in described(torch)
        assert {"capability", "onednn", "onednn_isa"} <= torch.keys()


def test_a_benchmark_says_how_libraries_were_asked(tmp_path: Path) -> None:
    workload, target = operators.build("matmul", M=24, N=24, K=24).normalised(), detect()
    trace = default_trace(workload, target)
    lock = tmp_path / "lock"
    report = bench(workload, trace, target, against=("numpy",), seconds=0.05, lock_path=lock)
    side = report.to_json()["against"]["numpy"]
    assert side["way"] in ("np.matmul", "np.dot", "operands exchanged")
    assert side["libraries"]["numpy"] == np.__version__
