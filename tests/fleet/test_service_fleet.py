"""A service with a fleet beside it: commands, jobs of several kinds of machines, and their ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from tests.support.fleet.local_fleet import LocalFleet, free_port
from tests.support.fleet.simulated import SPACE, TARGET, another_target, candidates, write_machine
from tests.support.service.served import COMMAND
from tilewright.service.cli import run
from tilewright.service.client import Client
from tilewright.tuner.measure.fleet.machines import fleet_status
from tilewright.tuner.measure.fleet.measurer import Fleet

MATMUL = "matmul:M=24,N=16,K=20"


@contextmanager
def command(*words: str) -> Iterator[subprocess.Popen[str]]:
    """`tilewright` in a process of its own, ended with SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_several_kinds_at_once_and_no_worker_is_left_by_a_killed_command(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    """A third machine, of another kind, joins by the command and is torn away with it."""
    target = tmp_path / "another.json"
    target.write_text(json.dumps(another_target().to_json()))
    measurer, _ = write_machine(tmp_path, "three", {"latency_secs": 0.01})
    words = ("worker", "--join", fleet.address, "--name", "three")
    with command(*words, "--measurer", measurer, "--target", str(target)) as process:
        before = {m.name: m.measured for m in fleet.wait_for(3)}
        with Fleet(fleet.address)(SPACE.workload, another_target(), 0) as measurer_of_three:
            assert all(r.ok for r in measurer_of_three.measure(candidates(4)))
            (home,) = [m for m in fleet_status(fleet.address) if m.name == "three"]
            assert measurer_of_three.confirm(candidates(1)[0]).ok
            assert measurer_of_three.home == home.address
        process.kill()
        after = {m.name: m.measured for m in fleet.wait_for(2)}
    assert after == {name: count for name, count in before.items() if name != "three"}


def test_a_fleet_on_loopback_listens_nowhere_else(fleet: LocalFleet) -> None:
    """Whoever reaches a Dask process runs code in it."""
    fleet.wait_for(2)
    for keeper in (fleet.scheduler, *fleet.machines.values()):
        assert keeper.pid is not None
        found = psutil.Process(keeper.pid).net_connections()
        listening = {c.laddr[0] for c in found if c.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}, keeper.name


def test_commands_speak_of_the_fleet(
    fleet: LocalFleet, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fleet.wait_for(2)
    assert run(["fleet", fleet.address]) == 0
    text = capsys.readouterr().out
    assert "one" in text
    assert "x86-64-v3" in text
    assert run(["fleet", fleet.address, "--json"]) == 0
    machines = json.loads(capsys.readouterr().out)["machines"]
    assert [m["name"] for m in machines] == ["one", "two"]
    dask = f"dask:{fleet.address}"
    assert run(["target", "--measurer", dask, "--target", "one", "--json"]) == 0
    target = json.loads(capsys.readouterr().out)
    assert target["key"] == TARGET.key
    assert target["probes"]["peak_gflops"] == TARGET.probes.peak_gflops
    words = ["tune", MATMUL, "--trials", "4", "--db", str(tmp_path / "t.sqlite"), "--json"]
    assert run([*words, "--measurer", dask, "--target", target["key"][:10]]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["target"]["key"] == TARGET.key
    assert report["trials"]["ok"] == 4
    assert run([*words, "--measurer", dask, "--target", "nobody"]) == 2
    assert "no machine of this kind" in capsys.readouterr().out
    assert run(["fleet", f"tcp://127.0.0.1:{free_port()}"]) == 5
    assert "no scheduler answers" in capsys.readouterr().err


def fleet_of(url: str) -> list[dict[str, Any]]:
    """The machines as anybody may ask for them."""
    with urlopen(f"{url}/v1/fleet") as answer:
        found = json.load(answer)
    assert found["fleet"]
    machines: list[dict[str, Any]] = found["machines"]
    return machines


@pytest.mark.usefixtures("needs_dask")
def test_serve_has_a_fleet_beside_it(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    measurer, target = write_machine(tmp_path, "four", {})
    db = str(tmp_path / "served.sqlite")
    serve = ["serve", "--port", "0", "--db", db, "--json", "--no-fleet-machine"]
    serve += ["--fleet-address", address]
    worker = ("worker", "--join", address, "--name", "four", "--measurer", measurer)
    with command(*serve) as process, command(*worker, "--target", target):
        assert process.stdout is not None
        told = "".join(iter(process.stdout.readline, "}\n")) + "}"
        url = json.loads(told)["url"]
        with Client(url) as client:
            with pytest.raises(Exception, match="must be local, dask"):
                client.submit(MATMUL, trials=4, measurer=f"dask:{address}")
            document = json.loads(Path(target).read_text())
            job = client.submit(MATMUL, trials=4, target=document, measurer="dask")
            done = client.wait(job.id, timeout_secs=60)
            assert done.state == "SUCCEEDED"
            assert done.document["request"]["measurer"] == "dask"
            (machine,) = fleet_of(url)
            assert machine["name"] == "four"
            assert machine["target"]["key"] == TARGET.key
            assert machine["mocked"]
            named = client.submit(MATMUL, trials=4, target="four", measurer="dask")
            assert named.id == job.id or client.wait(named.id, timeout_secs=60).done
            with pytest.raises(Exception, match="must be native or a target document"):
                client.submit(MATMUL, trials=4, target="four")
