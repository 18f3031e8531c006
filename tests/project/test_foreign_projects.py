"""Installing Tilewright changes nothing in projects that do not use it.

The wheel is installed into an environment of its own beside projects whose root packages have the
names of our five folders; their pytest must run as if Tilewright were not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.support.paths import ROOT

NAMES = ("schedules", "costmodel", "tuner", "db", "service")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel; dependencies are those of the
    tests."""
    folder = tmp_path_factory.mktemp("environment")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    home = folder / "venv"
    venv.create(home, with_pip=False)
    interpreter = home / "bin" / "python"
    site = _site_packages(interpreter)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--target", str(site), str(wheel)], check=True)
    # The libraries of this environment, without the editable install that its .pth files name:
    # a folder named on sys.path directly is searched for modules and metadata only.
    (site / "libraries.pth").write_text(f"{_site_packages(Path(sys.executable))}\n")
    return interpreter


def _site_packages(interpreter: Path) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def _run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_is_what_is_imported(python: Path, tmp_path: Path) -> None:
    done = _run([python, "-c", "import tilewright; print(tilewright.__file__)"], tmp_path)
    assert done.stdout.strip() == str(_site_packages(python) / "tilewright" / "__init__.py"), done


@pytest.mark.parametrize("layout", ["rootdir", "pythonpath"])
@pytest.mark.parametrize("name", NAMES)
def test_a_project_with_a_package_of_that_name_runs_its_tests(
    python: Path, name: str, layout: str, tmp_path: Path
) -> None:
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").write_text("def price() -> int:\n    return 7\n")
    (package / "errors.py").write_text("class OwnError(Exception):\n    pass\n")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_price.py").write_text(
        f"from {name} import price\nfrom {name}.errors import OwnError\n\n\n"
        "def test_price() -> None:\n    assert price() == 7 and OwnError\n"
    )
    if layout == "rootdir":
        (tests / "__init__.py").touch()
    else:
        (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    for start in (["-m", "pytest"], ["-c", "import pytest; pytest.console_main()"]):
        done = _run([python, *start, "-q", "-p", "no:cacheprovider"], tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 passed" in done.stdout


def test_the_fixtures_are_there_for_a_project_that_uses_them(python: Path, tmp_path: Path) -> None:
    (tmp_path / "test_mocked.py").write_text(
        "def test_tuned(tilewright_simulated) -> None:\n"
        "    report = tilewright_simulated.tune('matmul:M=8,N=8,K=8', trials=2)\n"
        "    assert report.best.verified\n"
    )
    done = _run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
