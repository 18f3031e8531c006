"""The example of a CMake build, as a project would run it: from a service, and from a bundle with
no network and no Python."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import uvicorn

from tests.support.paths import ROOT
from tilewright.db import Store, open_store
from tilewright.service.build.lock_file import LockFile
from tilewright.service.build.output_files import cmake_dir
from tilewright.service.cli import run
from tilewright.service.http.app import create_app
from tilewright.service.settings import Settings

cmake_package = pytest.importorskip("cmake")
CMAKE = Path(cmake_package.CMAKE_BIN_DIR) / "cmake"

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("make") is None, reason="needs cc and make"
)

TOOLS = ("ar", "as", "cc", "gcc", "ld", "make", "nm", "ranlib", "sh", "strip", "uname")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example, its lock file, a bundle and the database they come from."""
    folder = tmp_path_factory.mktemp("cmake")
    shutil.copytree(ROOT / "examples" / "cmake-app", folder / "app")
    lock, db = str(folder / "app" / "tilewright.lock.json"), ["--db", str(folder / "db.sqlite")]
    kernels = ["gemm=matmul:M=96,N=80,K=64", "soften=softmax_mn:M=96,N=80"]
    cpus = ["--cpu", "x86-64-v3,native", "--threads", "2"]
    assert run(["lock", *kernels, *cpus, "--file", lock, *db]) == 0
    assert run(["export", str(folder / "all.zip"), "--bundle", lock, *db]) == 0
    bin_ = folder / "bin"
    bin_.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found is not None:
            (bin_ / name).symlink_to(found)
    return folder


@contextmanager
def served(store: Store) -> Iterator[str]:
    """The API on a port of its own; its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        config = uvicorn.Config(create_app(Settings(port=port), store), log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            deadline = time.monotonic() + 60
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


def cmake(*words: str, folder: Path, code: int = 0, **variables: str) -> str:
    """What CMake says, run with compilers on the PATH and no Python."""
    env = {"PATH": str(folder / "bin"), "HOME": str(folder), **variables}
    done = subprocess.run(
        [str(CMAKE), *words], env=env, capture_output=True, text=True, check=False, cwd=folder
    )
    assert (done.returncode == 0) == (code == 0), done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def configure(folder: Path, build: str, *words: str) -> None:
    found = f"-DTilewright_DIR={cmake_dir()}"
    cmake("-S", "app", "-B", build, "-G", "Unix Makefiles", found, *words, folder=folder)


def built_and_run(folder: Path, build: str) -> str:
    cmake("--build", build, folder=folder)
    done = subprocess.run([folder / build / "app"], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_example_is_built_from_a_service_and_again_without_it(locked: Path) -> None:
    with open_store(str(locked / "db.sqlite")) as store, served(store) as url:
        configure(locked, "far", f"-DTilewright_SERVER={url}/")
        told = built_and_run(locked, "far")
    assert told.startswith("7680 numbers, all right; run by the code for")
    # The service is gone: what was downloaded stays, and is looked at again, not fetched again.
    configure(locked, "far", "-DTilewright_OFFLINE=ON")
    assert built_and_run(locked, "far") == told


def test_the_example_is_built_from_a_bundle_offline(locked: Path) -> None:
    words = ["-DTilewright_BUNDLE=../all.zip", "-DTilewright_OFFLINE=ON"]
    configure(locked, "near", *words)
    assert built_and_run(locked, "near").startswith("7680 numbers, all right")
    lock = LockFile.from_text((locked / "app/tilewright.lock.json").read_text(), "it")
    for kernel in lock.kernels:
        for name, ref in kernel.files.items():
            (found,) = (locked / "near" / "kernels").rglob(name)
            ref.check(found.read_bytes(), name)


SCRIPT = """
include("{config}")
tilewright_add_kernel(k LOCKFILE "{lock}" {words})
"""


def refused(locked: Path, folder: Path, words: str, lock: str = "", **variables: str) -> str:
    """What `tilewright_add_kernel` says to these words."""
    text = SCRIPT.format(
        config=cmake_dir() / "TilewrightConfig.cmake",
        lock=lock or locked / "app" / "tilewright.lock.json",
        words=words,
    )
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "script.cmake").write_text(text)
    return cmake("-P", "script.cmake", folder=folder, code=1, **variables)


def test_what_does_not_fit_is_told_while_configuring(locked: Path, tmp_path: Path) -> None:
    bundle = f"BUNDLE {locked / 'all.zip'}"
    assert "has no kernels called conv" in refused(locked, tmp_path, f"KERNELS conv {bundle}")
    assert "neither a SERVER nor a BUNDLE" in refused(locked, tmp_path, "", TILEWRIGHT_URL="")
    assert "not both" in refused(locked, tmp_path, f"SERVER http://a {bundle}")
    assert "unknown arguments KERNEL" in refused(locked, tmp_path, f"KERNEL gemm {bundle}")
    assert "there is no lock file" in refused(locked, tmp_path, bundle, lock="/none.json")
    assert "there is no bundle" in refused(locked, tmp_path, "BUNDLE /none.zip")
    (tmp_path / "new.json").write_text('{"version": 2}')
    new = refused(locked, tmp_path, bundle, lock=str(tmp_path / "new.json"))
    assert "not a lock file of version 1" in new
    (tmp_path / "evil.json").write_text('{"version": 1, "kernels": [{"name": "../../evil"}]}')
    evil = refused(locked, tmp_path, bundle, lock=str(tmp_path / "evil.json"))
    assert "is not a kernel name" in evil


def test_nobody_there_is_told_with_the_address(locked: Path, tmp_path: Path) -> None:
    said = refused(locked, tmp_path, "SERVER http://127.0.0.1:1")
    assert "http://127.0.0.1:1/v1/blobs/sha256:" in said
    assert "no response" in said


@pytest.mark.parametrize(
    ("status", "key", "words", "tries"),
    [
        (401, "", "requires a key (HTTP 401); set TILEWRIGHT_API_KEY", 1),
        (401, "wrong", "refuses this key (HTTP 401); set TILEWRIGHT_API_KEY", 1),
        (403, "poor", "refuses this key (HTTP 403); set TILEWRIGHT_API_KEY", 1),
        (404, "", "does not have this file (HTTP 404); `tilewright import` a bundle", 1),
        (503, "", "cannot be downloaded: HTTP 503", 3),
    ],
)
def test_what_a_service_answers_is_told_with_what_to_do(
    locked: Path, tmp_path: Path, status: int, key: str, words: str, tries: int
) -> None:
    asked: list[str] = []

    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization", ""))
            self.send_error(status)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"SERVER http://127.0.0.1:{server.server_port}"
        said = refused(locked, tmp_path, url, TILEWRIGHT_API_KEY=key)
        server.shutdown()
    assert words in said
    assert asked == [f"Bearer {key}" if key else ""] * tries
    assert not key or f"Bearer {key}" not in said


@pytest.mark.parametrize("where", ["bundle", "service", "cache"])
def test_bytes_that_are_not_the_locked_ones_stop_the_build(
    where: str, locked: Path, tmp_path: Path
) -> None:
    text = (locked / "app/tilewright.lock.json").read_text()
    lock = LockFile.from_text(text, "it")
    one = lock.kernels[0].object.sha256
    if where == "bundle":
        with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
            archive.writestr(f"blobs/sha256/{one}", b"evil")
        said = refused(locked, tmp_path, f"BUNDLE {tmp_path / 'bad.zip'}")
        assert "is damaged" in said
    elif where == "service":
        (tmp_path / "v1" / "blobs").mkdir(parents=True)
        for kernel in lock.kernels:
            for ref in kernel.files.values():
                (tmp_path / "v1" / "blobs" / f"sha256:{ref.sha256}").write_bytes(b"evil")
        said = refused(locked, tmp_path, f"SERVER file://{tmp_path}")
        assert "which is not locked" in said
    else:
        kept = tmp_path / "_tilewright"
        kept.mkdir()
        (kept / one).write_bytes(b"evil")
        assert "neither a SERVER" in refused(locked, tmp_path, "", TILEWRIGHT_URL="")
        assert not (kept / one).exists()
    assert not list(tmp_path.rglob("*.o"))


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
def test_pkg_config_tells_how_to_link(locked: Path, tmp_path: Path) -> None:
    lock = str(locked / "app" / "tilewright.lock.json")
    words = ["fetch", lock, "-o", str(tmp_path / "k"), "--offline", str(locked / "all.zip")]
    assert run(words) == 0
    (tmp_path / "k").rename(tmp_path / "moved")
    told = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "tilewright-kernels"],
        env={**os.environ, "PKG_CONFIG_PATH": str(tmp_path / "moved")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    source = str(ROOT / "examples" / "cmake-app" / "main.c")
    program = str(tmp_path / "app")
    subprocess.run(["cc", "-std=c11", source, *told, "-lm", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert "all right" in done.stdout
