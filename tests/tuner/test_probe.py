"""Probes: kernels that do what they count, estimators, and the process that runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from llvmlite import binding as llvm

from tests.support.paths import ROOT, TARGET_FILES, example_target
from tilewright.schedules.dtypes import FLOATS, DType
from tilewright.schedules.errors import TargetError
from tilewright.schedules.nest.instructions import BY_NAME
from tilewright.schedules.target import Cache, Probes, Target
from tilewright.tuner import timeouts
from tilewright.tuner.backend.cpu.probing import kernels, machine, prober, rounds
from tilewright.tuner.backend.cpu.probing.machine import probed_dots
from tilewright.tuner.machine import machine_lock, probe
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.machine.probe_merging import is_misleading
from tilewright.tuner.process.control import Control, MeasurementAborted

TARGETS = [example_target(path.stem) for path in TARGET_FILES]


def assembly_of(text: str, target: Target) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    features = ",".join(f"+{f}" for f in target.features)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=features, opt=3
    )
    module = llvm.parse_assembly(text)
    module.verify()
    return str(machine.emit_assembly(module))


def loop_of(assembly: str) -> list[str]:
    """The instructions of the innermost loop: from a label to the first jump back to it."""
    label, body = "", list[str]()
    for line in assembly.splitlines():
        if found := re.match(r"(\.?L\w+):", line):
            label, body = found[1], []
        elif line.startswith("\t") and not line.startswith("\t."):
            body.append(line.strip())
            if label and re.search(rf"\s{re.escape(label)}$", line):
                return body
    raise AssertionError(f"no loop in\n{assembly}")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_a_burst_keeps_to_the_registers(target: Target) -> None:
    kernel = kernels.arithmetic_kernel(target, DType.F32, "tw_burst")
    assert kernel.symbol in kernel.text
    loop = loop_of(assembly_of(kernel.text, target))
    fused = [line for line in loop if re.match(r"vfmadd|fml[as]", line)]
    assert len(fused) == kernels.accumulators(target)
    assert not [line for line in loop if "(%r" in line or "[sp" in line or "[x" in line]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_a_reading_kernel_loads_every_vector_it_counts(target: Target) -> None:
    text = kernels.read_kernel(target, "read").text
    loop = loop_of(assembly_of(text, target))
    loads = [line for line in loop if "(%r" in line or re.match(r"ld[rpu]", line)]
    vectors = sum(2 if line.startswith("ldp") else 1 for line in loads)
    assert vectors == kernels.read_step_bytes(target) * 8 // target.vector_bits


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_no_compiler_shortens_the_chain_that_shows_the_clock(target: Target) -> None:
    kernel = kernels.chain_kernel("chain")
    loop = loop_of(assembly_of(kernel.text, target))
    added = [line for line in loop if re.match(r"(add|xor|lea|eor)", line)]
    assert len([line for line in added if re.match(r"(xor|eor)", line)]) == kernels.CHAIN_STEPS // 2
    assert len(added) >= kernel.ops_per_iteration


def test_counts_of_work() -> None:
    wide = next(t for t in TARGETS if t.cpu == "znver5")
    assert kernels.arithmetic_kernel(wide, DType.F32, "f").ops_per_iteration == 24 * 16 * 2
    assert kernels.arithmetic_kernel(wide, DType.F64, "f").ops_per_iteration == 24 * 8 * 2
    assert kernels.read_step_bytes(wide) == 16 * 64


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (64, [1, 2, 4, 8, 16, 32, 64])]
)
def test_thread_counts_double_up_to_all(cores: int, counts: list[int]) -> None:
    assert rounds.thread_counts(cores) == counts


def test_thread_counts_in_between_are_interpolated() -> None:
    assert rounds.spread({1: 10.0, 2: 20.0, 4: 30.0, 6: 31.0}, 6) == [10, 20, 25, 30, 30.5, 31]


def test_a_busy_core_does_not_lower_a_peak() -> None:
    alone = machine.Burst(1000, 1.0, (1.0,))
    shared_with_another = machine.Burst(1000, 2.0, (1.0,))
    assert alone.clean
    assert not shared_with_another.clean
    assert alone.rate(shared=False) == shared_with_another.rate(shared=False) == 1000
    assert shared_with_another.rate(shared=True) == 500


def test_clean_bursts_go_before_faster_ones() -> None:
    siblings = machine.Burst(1000, 2.0, (2.0, 2.0))  # two threads of one core, at once
    apart = machine.Burst(1000, 2.0, (1.0, 1.0))  # one after the other: not what is asked
    assert machine.best_rate([siblings, apart], shared=False) == 1000
    assert machine.best_rate([apart], shared=False) == 2000


def test_what_does_not_add_up_is_measured_again_later() -> None:
    asked: list[int] = []
    pauses: list[int] = []

    def measure(threads: int) -> float:
        asked.append(threads)
        return 15.0 if len(asked) == 1 else 19.5

    rates = {"f32": {1: 10.0, 2: 12.0}, "f64": {1: 5.0, 2: 9.9}, "memory": {1: 5.0, 2: 5.0}}
    private = {"f32": measure, "f64": measure}
    rounds.look_again(private, rates, pause=lambda: pauses.append(1))
    assert rates == {"f32": {1: 10.0, 2: 19.5}, "f64": {1: 5.0, 2: 9.9}, "memory": {1: 5.0, 2: 5.0}}
    assert (asked, len(pauses)) == ([2, 2], 2)


def test_looking_again_never_lowers_a_rate_and_ends() -> None:
    rates = {"f32": {1: 10.0, 2: 12.0}}
    rounds.look_again({"f32": lambda threads: 11.0}, rates, pause=lambda: None)
    assert rates == {"f32": {1: 10.0, 2: 12.0}}


class Script:
    """Rounds of one figure, and in which of them others worked."""

    def __init__(self, rates: list[float], busy: list[bool]) -> None:
        self.rates, self.busy = iter(rates), busy
        self.rounds = self.asked = self.pauses = 0

    def measure(self) -> dict[rounds.Figure, float]:
        self.rounds += 1
        return {("memory", 1): next(self.rates)}

    def others_worked(self) -> bool:
        """Asked before and after each round; what was before does not count."""
        self.asked += 1
        return self.asked % 2 == 1 or self.busy[self.rounds - 1]

    def pause(self) -> None:
        self.pauses += 1

    def run(self) -> rounds.Rounds:
        return rounds.best_of_rounds(self.measure, self.others_worked, self.pause)


def test_quiet_rounds_end_when_they_bring_nothing_new() -> None:
    steady = Script([10.0, 10.1, 10.0], [False] * 3)
    assert steady.run() == rounds.Rounds({("memory", 1): 10.1}, quiet=True)
    assert (steady.rounds, steady.pauses) == (3, 0)
    rising = Script([10.0, 10.0, 11.0, 11.0], [False] * 4)
    assert rising.run() == rounds.Rounds({("memory", 1): 11.0}, quiet=True)


def test_busy_rounds_are_made_up_for_and_what_they_reached_counts() -> None:
    disturbed = Script([5.0, 12.0, 10.0, 10.0, 10.0], [True, True, False, False, False])
    assert disturbed.run() == rounds.Rounds({("memory", 1): 12.0}, quiet=True)
    assert disturbed.pauses == 2


def test_a_machine_that_stays_busy_is_told_as_such() -> None:
    busy = Script([5.0] * rounds.MAX_ROUNDS, [True] * rounds.MAX_ROUNDS)
    assert busy.run() == rounds.Rounds({("memory", 1): 5.0}, quiet=False)
    assert busy.rounds == rounds.MAX_ROUNDS


def test_probing_comes_to_an_end_in_the_time_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Waiting for the lock counts: with two seconds, which probing takes, nobody waits at all."""
    monkeypatch.setattr(machine_lock, "lock_path", lambda: tmp_path / "lock")
    left: list[float] = []

    def probe_now(target: Target, deadline_secs: float, control: Control) -> Probes:
        left.append(deadline_secs)
        return Probes({"f32": [1.0]})

    monkeypatch.setattr(probe, "_probe_now", probe_now)
    with machine_lock.machine_lock():
        assert probe.probe_target(detect(), timeouts.MIN_PROBING_SECS).doubtful
    assert 0.0 < left[0] <= timeouts.MIN_PROBING_SECS


def test_probes_beside_another_measurement_are_doubtful(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine_lock, "lock_path", lambda: tmp_path / "lock")
    monkeypatch.setattr(timeouts, "PROBING_LOCK_WAIT_SECS", 0.0)
    monkeypatch.setattr(probe, "_probe_now", lambda *_: Probes({"f32": [1.0]}))
    assert not probe.probe_target(detect()).doubtful
    with machine_lock.machine_lock():
        assert probe.probe_target(detect()).doubtful


def test_a_clock_that_was_missing_or_far_too_low_misled_a_search() -> None:
    known = Probes({"f32": [118.0]}, clock_ghz=3.7)
    assert is_misleading(replace(known, clock_ghz=0.0), known)
    assert is_misleading(replace(known, clock_ghz=1.9), known)
    assert not is_misleading(replace(known, clock_ghz=3.5), known)
    assert not is_misleading(known, replace(known, clock_ghz=0.0))


def test_working_sets_lie_inside_their_level() -> None:
    target = replace(
        detect(), caches=(Cache(48 << 10, 12), Cache(1 << 20, 16), Cache(32 << 20, 16, shared=True))
    )
    sets = machine.working_sets(target, 16 << 30)
    step = 16 * kernels.read_step_bytes(target)
    assert sets["L1"] == ((24 << 10) // step * step, False)
    assert sets["L2"] == (512 << 10, False)
    assert sets["L3"] == (8 << 20, True)
    assert sets["memory"] == (128 << 20, True)
    assert all(size % kernels.read_step_bytes(target) == 0 for size, _ in sets.values())


def test_the_memory_probe_leaves_memory_to_others() -> None:
    assert machine.working_sets(detect(), 80 << 20)["memory"][0] <= 10 << 20


def probed_aside() -> Probes:
    """The probes of this machine, made in a process that starts no OpenMP."""
    code = (
        "import json, sys; from dataclasses import asdict;"
        "from tilewright.tuner.machine.native_target import detect;"
        "from tilewright.tuner.machine.probe import probe_target;"
        "json.dump(asdict(probe_target(detect())), sys.stdout);"
        "sys.exit('libgomp' in open('/proc/self/maps').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    return Probes(**json.loads(done.stdout))


def is_in_proportion(found: Probes) -> bool:
    wide = found.peak(DType.F32, 1) > 1.2 * found.peak(DType.F64, 1)
    return wide and found.bandwidth("L1", 1) > found.bandwidth("memory", 1)


def test_probes_of_this_machine_are_plausible_and_start_no_openmp_here() -> None:
    found, target = probed_aside(), detect()
    assert set(found.peak_gflops) == {*FLOATS, "i32", *probed_dots(target)}
    levels = [f"L{i + 1}" for i in range(len(target.caches))]
    assert list(found.bandwidth_gbs) == [*levels, "memory"]
    for values in (*found.peak_gflops.values(), *found.bandwidth_gbs.values()):
        assert len(values) == target.cores
        assert min(values) > 0
    assert 0 < found.parallel_region_secs <= machine.MAX_REGION_SECS
    assert 0.1 < found.clock_ghz < 10
    assert found.peak(DType.F32, 1) < 2 * target.lanes(DType.F32) * 8 * 10  # 8 a cycle at 10 GHz
    # Other processes may take any share of the machine while one of the two is probed.
    assert is_in_proportion(found) or any(is_in_proportion(probed_aside()) for _ in range(4))


@pytest.mark.parametrize(
    ("name", "features", "bits"),
    [
        ("vpdpbusd", ("avx512vnni",), 512),
        ("vpdpbusd", ("avx512vl", "avx512vnni"), 256),
        ("vpdpbusd", ("avxvnni",), 256),
        ("vdpbf16ps", ("avx512bf16",), 512),
        ("vdpbf16ps", ("avx512bf16", "avx512vl"), 256),
    ],
)
def test_dot_products_are_probed_by_their_instruction(
    name: str, features: tuple[str, ...], bits: int
) -> None:
    plain = Target(
        "x86_64-unknown-linux-gnu", "x86-64-v3", (), bits, 16, (Cache(32768, 8),), cores=1
    )
    assert kernels.dot_kernel(plain, BY_NAME[name], "probe") is None
    kernel = kernels.dot_kernel(replace(plain, features=features), BY_NAME[name], "probe")
    assert kernel is not None
    text = assembly_of(kernel.text, replace(plain, features=features))
    loop = text[text.index("LBB0_1:") : text.index("LBB0_2") if "LBB0_2" in text else None]
    assert len(re.findall(rf"\b{name}\b", loop)) == kernels.accumulators(plain)
    per_lane = 4 if name == "vpdpbusd" else 2
    assert kernel.ops_per_iteration == 2 * kernels.accumulators(plain) * bits // 32 * per_lane


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Stands in for the process that probes."""
    command = [sys.executable, "-S", "-c", text]
    monkeypatch.setattr(probe, "module_command", lambda module: command)


def test_a_probe_that_dies_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "import sys; print('first\\nIllegal', file=sys.stderr); sys.exit(132)")
    with pytest.raises(TargetError, match=r"failed with status 132: Illegal"):
        probe.probe_target(detect())


def test_a_probe_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(timeouts, "PROBING_DEADLINE_SECS", 0.2)
    with pytest.raises(TargetError, match=r"took longer than 0 s and was stopped"):
        probe.probe_target(detect())


def test_a_probe_is_ended_by_its_control(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program(monkeypatch, f"open({str(begun)!r}, 'w'); import time; time.sleep(60)")
    control = Control()
    with ThreadPoolExecutor(1) as thread:
        probing = thread.submit(probe.probe_target, detect(), control=control)
        while not begun.exists():
            time.sleep(0.01)
        control.abort()
        with pytest.raises(MeasurementAborted):
            probing.result()
    with pytest.raises(MeasurementAborted), control.killing(lambda: None):
        pytest.fail("nothing begins after the end")


def test_a_probe_that_waits_for_the_machine_is_ended_by_its_control(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine_lock, "lock_path", lambda: tmp_path / "lock")
    monkeypatch.setattr(probe, "_probe_now", lambda *_: pytest.fail("the machine was not free"))
    control = Control()
    with machine_lock.machine_lock():
        control.abort()
        with pytest.raises(MeasurementAborted):
            probe.probe_target(detect(), control=control)


def test_without_libgomp_a_region_has_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_GOMP", "libgomp-that-is-not-there.so")
    single = replace(detect(), cores=1, caches=(Cache(32 << 10, 8),))
    found = prober.measure_probes(single, budget_secs=0.02)
    assert (
        found.parallel_region_secs == machine.DEFAULT_REGION_SECS == Probes().parallel_region_secs
    )
    assert found.peak(DType.F32, 1) > 0
