"""The machine's description: what is read, what is cached, and what a bad file says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import pytest

from tests.support.paths import TARGET_FILES
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Cache, Probes, Target
from tilewright.tuner import timeouts
from tilewright.tuner.isa.instruction_set import vector_shape
from tilewright.tuner.machine.native_target import (
    ThisMachine,
    detect,
    load_target,
    native_target,
    unprobed_target,
)
from tilewright.tuner.machine.probe_merging import merged_probes
from tilewright.tuner.process import host


class CountingProber:
    """Stands in for the probes: every call gives a peak one higher."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, target: Target, within_secs: float = inf) -> Probes:
        self.calls += 1
        return Probes({"f32": [float(self.calls)]}, {}, 1e-6)


def native(folder: Path, prober: CountingProber, now: float = 1e9, **options: bool) -> Target:
    return native_target(cache_dir=folder, prober=prober, clock=lambda: now, **options)


def cache_file(folder: Path) -> Path:
    (path,) = (folder / "targets").iterdir()
    return path


def test_detect_describes_this_machine() -> None:
    target = detect()
    assert target.cores == host.available_cores()
    assert list(target.features) == sorted(target.features)
    assert not any(feature.startswith(("+", "-")) for feature in target.features)
    assert (target.vector_bits, target.vector_registers) == vector_shape(
        target.architecture, target.features
    )
    sizes = [cache.bytes for cache in target.caches]
    assert sizes == sorted(sizes)
    assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target


@pytest.mark.parametrize(
    ("triple", "features", "shape"),
    [
        ("x86_64-unknown-linux-gnu", ("avx", "avx2", "avx512f", "sse2"), (512, 32)),
        ("x86_64-unknown-linux-gnu", ("avx", "avx2", "sse2"), (256, 16)),
        ("x86_64-unknown-linux-gnu", ("avx", "sse2"), (256, 16)),
        ("x86_64-unknown-linux-gnu", ("sse2",), (128, 16)),
        ("aarch64-unknown-linux-gnu", ("neon", "sve"), (128, 32)),
    ],
)
def test_vector_shape(triple: str, features: tuple[str, ...], shape: tuple[int, int]) -> None:
    assert vector_shape(triple.partition("-")[0], features) == shape


def test_probes_are_taken_once_and_kept(tmp_path: Path) -> None:
    prober = CountingProber()
    first = native(tmp_path, prober)
    again = native(tmp_path, prober, now=1e9 + timeouts.MAX_PROBE_AGE_SECS)
    assert prober.calls == 1
    assert first.probes == again.probes == Probes({"f32": [1.0]}, {}, 1e-6)
    assert first == again == detect()


@pytest.mark.parametrize("now", [1e9 + timeouts.MAX_PROBE_AGE_SECS + 1, 1e9 - 1])
def test_old_probes_and_probes_of_the_future_are_taken_again(tmp_path: Path, now: float) -> None:
    prober = CountingProber()
    native(tmp_path, prober)
    assert native(tmp_path, prober, now=now).probes.peak(DType.F32, 1) == 2.0
    assert native(tmp_path, prober, now=now).probes.peak(DType.F32, 1) == 2.0


@dataclass
class Script:
    """Probes that come one after the other: a peak of one and two threads, and whether the machine
    was busy."""

    peaks: Iterator[tuple[float, float, bool]]

    def __call__(self, target: Target) -> Probes:
        one, two, busy = next(self.peaks)
        return Probes({"f32": [one, two]}, {}, 1e-6 if busy else 5e-7, doubtful=busy)


def test_probes_of_a_busy_machine_are_soon_taken_again_and_the_best_is_kept(tmp_path: Path) -> None:
    prober = Script(iter([(9.0, 10.0, True), (8.0, 12.0, True), (10.0, 20.0, False)]))

    def at(secs: float) -> Probes:
        return native_target(cache_dir=tmp_path, prober=prober, clock=lambda: 1e9 + secs).probes

    assert (
        at(0)
        == at(timeouts.MAX_DOUBTFUL_PROBE_AGE_SECS)
        == Probes({"f32": [9.0, 10.0]}, {}, 1e-6, True)
    )
    assert at(timeouts.MAX_DOUBTFUL_PROBE_AGE_SECS + 1) == Probes(
        {"f32": [9.0, 12.0]}, {}, 1e-6, True
    )
    quiet = at(3 * timeouts.MAX_DOUBTFUL_PROBE_AGE_SECS)
    assert quiet == Probes({"f32": [10.0, 20.0]}, {}, 5e-7, False)
    assert at(timeouts.MAX_PROBE_AGE_SECS) == quiet, "kept for a week"


def test_a_disturbed_figure_is_not_kept_because_the_clock_fell_since() -> None:
    disturbed = Probes({"f32": [10.0, 12.0]}, {"memory": [5.0, 6.0]}, doubtful=True)
    slower = Probes({"f32": [9.5, 19.0]}, {"memory": [5.0, 9.0]})
    found = merged_probes(detect(), disturbed, slower)
    assert found == Probes({"f32": [10.0, 20.0]}, {"memory": [5.0, 9.0]})
    assert merged_probes(detect(), slower, disturbed).peak_gflops == {"f32": [10.0, 19.0]}
    assert merged_probes(detect(), slower, disturbed).doubtful


def test_probes_for_other_thread_counts_are_not_joined() -> None:
    found = merged_probes(detect(), Probes({"f32": [10.0]}), Probes({"f32": [9.0, 18.0]}))
    assert found.peak_gflops["f32"] == pytest.approx([9.9, 19.8])


def test_the_machine_is_probed_again_unless_it_just_was(tmp_path: Path) -> None:
    now, prober = [1e9], CountingProber()
    machine = ThisMachine(tmp_path, lambda: now[0], prober)
    target = native(tmp_path, prober)
    again = machine.probe_again(target, 60.0, inf)
    assert again is not None
    assert (again.probes, prober.calls) == (target.probes, 1)
    now[0] += 61
    again = machine.probe_again(target, 60.0, inf)
    assert again is not None
    assert again.probes.peak(DType.F32, 1) == 2.0
    assert native(tmp_path, prober, now=now[0]).probes == again.probes, "later runs know it"
    assert prober.calls == 2


def test_probing_again_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    allowed: list[float] = []

    def prober(target: Target, within_secs: float) -> Probes:
        allowed.append(within_secs)
        return Probes({"f32": [9.0]})

    target = native(tmp_path, CountingProber())
    later = ThisMachine(tmp_path, lambda: 1e9 + 7200, prober)
    assert later.probe_again(target, 60.0, 0.5) is None
    assert not allowed
    assert ThisMachine(tmp_path, lambda: 1e9, prober).probe_again(target, 60.0, 0.5) is not None
    assert later.probe_again(target, 60.0, 8.0) is not None
    assert allowed == [8.0]


def test_another_machine_s_target_is_not_probed_here(tmp_path: Path) -> None:
    prober = CountingProber()
    machine = ThisMachine(tmp_path, lambda: 1e9, prober)
    other = replace(detect(), cpu="some-other-cpu")
    assert machine.probe_again(other, 60.0, inf) is None
    machine.cache_probes(other)
    assert prober.calls == 0


def test_what_a_kernel_showed_is_kept_for_a_minute_and_joined_with_the_next_probe(
    tmp_path: Path,
) -> None:
    prober = CountingProber()
    target = native(tmp_path, prober)
    shown = replace(target, probes=Probes({"f32": [7.0]}, {}, 1e-6, doubtful=True))
    ThisMachine(tmp_path, lambda: 1e9, prober).cache_probes(shown)
    assert native(tmp_path, prober, now=1e9 + 10).probes == shown.probes
    later = native(tmp_path, prober, now=1e9 + 100).probes
    assert later.peak(DType.F32, 1) == pytest.approx(7.0)
    assert not later.doubtful
    assert prober.calls == 2


def test_fresh_probes_again(tmp_path: Path) -> None:
    prober = CountingProber()
    native(tmp_path, prober)
    native(tmp_path, prober, fresh=True)
    assert prober.calls == 2


def test_without_probing_old_probes_are_still_given(tmp_path: Path) -> None:
    prober = CountingProber()
    assert native(tmp_path, prober, probe=False).probes == Probes()
    assert prober.calls == 0
    native(tmp_path, prober)
    old = native(tmp_path, prober, now=2e9, probe=False)
    assert old.probes.peak(DType.F32, 1) == 1.0
    assert prober.calls == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[: len(text) // 2],
        lambda text: b"\xff\xfe\x00",
        lambda text: b"[]",
        lambda text: b'{"probed_at": 1}',
        lambda text: text.replace(b'"vector_bits": ', b'"vector_bits": 7'),
        lambda text: text.replace(b'"probed_at": ', b'"probed_at": [], "x": '),
    ],
)
def test_a_damaged_cache_file_is_made_anew(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    prober = CountingProber()
    native(tmp_path, prober)
    path = cache_file(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert native(tmp_path, prober).probes.peak(DType.F32, 1) == 2.0
    assert native(tmp_path, prober).probes.peak(DType.F32, 1) == 2.0  # and whole again
    assert cache_file(tmp_path) == path  # no temporary file is left


def test_a_cache_folder_that_cannot_be_written_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "targets").write_text("a file where the folder should be")
    assert native(tmp_path, CountingProber()).probes.peak(DType.F32, 1) == 1.0


def test_a_cached_target_needs_no_llvm(tmp_path: Path) -> None:
    native(tmp_path, CountingProber(), now=time.time())
    code = (
        "import sys; from pathlib import Path;"
        "from tilewright.tuner.machine.native_target import native_target;"
        f"native_target(cache_dir=Path({str(tmp_path)!r}));"
        "sys.exit('llvmlite.binding' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_another_affinity_is_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native(tmp_path, CountingProber())
    monkeypatch.setattr("tilewright.tuner.machine.native_target.cpu_affinity", lambda: [7])
    native(tmp_path, CountingProber())
    assert len(list((tmp_path / "targets").iterdir())) == 2


def test_more_threads_than_cores_is_refused(tmp_path: Path) -> None:
    cores = host.available_cores()
    with pytest.raises(TargetError, match=rf"threads={cores + 1}: .* allows 1\.\.{cores}"):
        native_target(cores + 1, cache_dir=tmp_path, probe=False)
    assert native_target(cores, cache_dir=tmp_path, probe=False).threads == cores


@pytest.mark.parametrize("spec", ["native", "x86-64-v3"])
def test_no_threads_are_refused(spec: str) -> None:
    with pytest.raises(TargetError, match=r"threads=0: .* allows 1\.\."):
        load_target(spec, 0, probe=False)


@pytest.mark.parametrize("path", TARGET_FILES, ids=lambda path: path.stem)
def test_the_example_targets_load(path: Path) -> None:
    target = load_target(str(path))
    assert (target.vector_bits, target.vector_registers) == vector_shape(
        target.architecture, target.features
    )
    assert target.threads == 1
    assert load_target(str(path), target.cores).threads == target.cores


def test_native_is_a_target_spec(tmp_path: Path) -> None:
    assert load_target("native", cache_dir=tmp_path, probe=False) == detect()


GOOD = replace(detect(), probes=Probes({"f32": [1.0]})).to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"bad\.json: not JSON"),
        ("[" * 100_000, r"bad\.json: not JSON"),
        ("\xff", r"bad\.json: not JSON"),
        ("[1]", r"bad\.json: a JSON list, not an object"),
        ("{}", r"bad\.json: not a target description: it has no 'triple'"),
        (json.dumps({**GOOD, "vector_bits": 100}), r"vector_bits must be 64, 128, 256 or 512"),
        (json.dumps({**GOOD, "cores": "many"}), r"cores must be a whole .* got 'many'"),
        (json.dumps({**GOOD, "caches": []}), r"the number of caches must be .* got 0"),
        (json.dumps({**GOOD, "threads": 10**9}), r"threads must be a whole .* got 1000000000"),
        (json.dumps({**GOOD, "caches": [{"bytes": 32768, "ways": 0}]}), r"caches/0/ways must be"),
        (json.dumps({**GOOD, "triple": "toaster"}), r"triple must be LLVM's, .* got 'toaster'"),
        (" " * (1 << 20) + "{}", r"bad\.json: larger than 1048576 bytes"),
    ],
    ids=[
        "torn",
        "deep",
        "binary",
        "list",
        "empty",
        "bits",
        "cores",
        "caches",
        "threads",
        "ways",
        "triple",
        "huge",
    ],
)
def test_a_bad_target_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(TargetError, match=message):
        load_target(str(path))


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_target_file_that_cannot_be_read_says_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(TargetError, match=r"cannot be read .*'native', x86-64, .* or a file as in"):
        load_target(str(tmp_path / name))


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cache_files(index: int, level: str, kind: str, size: str, cpus: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
    return {
        f"{folder}/level": level + "\n",
        f"{folder}/type": kind + "\n",
        f"{folder}/size": size + "\n",
        f"{folder}/ways_of_associativity": "12\n",
        f"{folder}/coherency_line_size": "64\n",
        f"{folder}/shared_cpu_list": cpus + "\n",
    }


def test_caches_are_read_from_sys(tmp_path: Path) -> None:
    files = {"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0,4\n"}
    files |= cache_files(0, "1", "Data", "48K", "0,4")
    files |= cache_files(1, "1", "Instruction", "32K", "0,4")
    files |= cache_files(2, "2", "Unified", "1024K", "0,4")
    files |= cache_files(3, "3", "Unified", "32M", "0-7")
    assert host.data_caches(write_tree(tmp_path, files)) == (
        Cache(bytes=48 << 10, ways=12),
        Cache(bytes=1 << 20, ways=12),
        Cache(bytes=32 << 20, ways=12, shared=True),
    )


def test_caches_have_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host.data_caches(tmp_path)[0].bytes >= 8 << 10
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert host.data_caches(tmp_path) == host.DEFAULT_CACHES
    odd = cache_files(0, "one", "Data", "48 furlongs", "0")
    assert host.data_caches(write_tree(tmp_path, odd)) == host.DEFAULT_CACHES


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            },
            4.0,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
    ],
    ids=["nothing", "v2-parent", "v2-max", "v1", "v1-unlimited"],
)
def test_cgroup_quota(tmp_path: Path, files: dict[str, str], cpus: float | None) -> None:
    root = write_tree(tmp_path, files)
    assert host.cgroup_cpus(root) == cpus
    most = len(host.cpu_affinity())
    assert host.available_cores(root) == (most if cpus is None else max(1, min(most, int(cpus))))


def test_siblings_come_last(tmp_path: Path) -> None:
    pairs = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    folder = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    root = write_tree(tmp_path, {folder.format(cpu): text for cpu, text in pairs.items()})
    assert host.distinct_cores_first([0, 2, 1, 3], root) == [0, 1, 2, 3]


def test_identity_leaves_out_what_changes(tmp_path: Path) -> None:
    text = "processor : 0\nmodel name : X\ncpu MHz : {}\nflags : fma\n\nprocessor : 1\n"
    slow = write_tree(tmp_path / "a", {"proc/cpuinfo": text.format(1000)})
    fast = write_tree(tmp_path / "b", {"proc/cpuinfo": text.format(2000)})
    other = write_tree(tmp_path / "c", {"proc/cpuinfo": text.replace("fma", "sse")})
    assert host.cpu_identity(slow) == host.cpu_identity(fast) != host.cpu_identity(other)


def test_memory_that_is_not_reported_counts_as_a_gigabyte(tmp_path: Path) -> None:
    assert host.available_memory_bytes(tmp_path) == 1 << 30
    root = write_tree(tmp_path, {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   2048 kB\n"})
    assert host.available_memory_bytes(root) == 2 << 20


def test_a_document_says_only_of_doubtful_probes_that_they_are() -> None:
    sure, doubtful = (replace(detect(), probes=Probes({}, {}, 1e-6, d)) for d in (False, True))
    assert "doubtful" not in sure.to_json()["probes"]
    assert doubtful.to_json()["probes"]["doubtful"] is True
    for target in (sure, doubtful):
        assert Target.from_json(target.to_json()).probes == target.probes


def test_other_machines_timings_are_searched_without_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native(tmp_path, CountingProber())
    described = unprobed_target(2, cache_dir=tmp_path)
    assert described == replace(native_target(2, cache_dir=tmp_path), probes=Probes())
