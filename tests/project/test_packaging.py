"""The wheel holds what a user needs and nothing else; every dependency is pinned."""

from __future__ import annotations

import re
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

PACKAGES = ("schedules", "costmodel", "tuner", "db", "service", "peers")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    builder = WheelBuilder(str(ROOT))
    (built,) = builder.build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_every_module_is_in_the_wheel(wheel: set[str]) -> None:
    for package in PACKAGES:
        for path in (ROOT / "tilewright" / package).rglob("*.py"):
            assert str(path.relative_to(ROOT)) in wheel


def test_migrations_and_type_marks_are_in_the_wheel(wheel: set[str]) -> None:
    assert "tilewright/py.typed" in wheel
    migrations = "tilewright/db/migrations"
    assert {f"{migrations}/env.py", f"{migrations}/script.py.mako"} <= wheel
    versions = list((ROOT / "db" / "migrations" / "versions").glob("*.py"))
    assert versions
    assert {f"{migrations}/versions/{path.name}" for path in versions} <= wheel


def test_templates_and_assets_of_the_dashboard_are_in_the_wheel(wheel: set[str]) -> None:
    pages = ROOT / "service" / "http" / "pages"
    for folder, least in (("templates", 15), ("static", 8)):
        files = [path for path in (pages / folder).iterdir() if path.is_file()]
        assert len(files) >= least
        assert {f"tilewright/{path.relative_to(ROOT)}" for path in files} <= wheel


def test_the_files_of_monitoring_are_in_the_wheel(wheel: set[str]) -> None:
    assert {
        f"tilewright/service/monitoring/{name}" for name in ("grafana.json", "alerts.yml")
    } <= wheel


def test_the_files_of_cmake_builds_are_in_the_wheel(wheel: set[str]) -> None:
    folder = "tilewright/service/build/cmake"
    assert {f"{folder}/TilewrightConfig.cmake", f"{folder}/TilewrightConfigVersion.cmake"} <= wheel


def test_nothing_else_is_in_the_wheel(wheel: set[str]) -> None:
    """One top-level name: installing a library changes nothing for projects that do not use it."""
    roots = {name.partition("/")[0] for name in wheel}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"tilewright"}
    inside = {name.split("/")[1] for name in wheel if name.startswith("tilewright/")}
    own = {path.name for path in (ROOT / "tilewright").iterdir()} - {"__pycache__"}
    assert inside == own >= set(PACKAGES)
    assert not [name for name in wheel if name.endswith((".pyc", ".sqlite", ".so"))]


def _requirements(project: dict[str, Any]) -> list[Requirement]:
    extras = project["project"]["optional-dependencies"].values()
    texts = [*project["project"]["dependencies"], *(text for extra in extras for text in extra)]
    found = [Requirement(text) for text in [*texts, *project["build-system"]["requires"]]]
    return [
        r for r in found if r.name != "tilewright" and (r.marker is None or r.marker.evaluate())
    ]


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {
        canonicalize_name(name): pin
        for name, pin in (line.split("==") for line in lines if not line.startswith("#"))
    }


def test_every_dependency_is_pinned_to_a_version_it_allows(project: dict[str, Any]) -> None:
    pins = _pins()
    for requirement in _requirements(project):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name} is not in constraints.txt: make lock"
        assert requirement.specifier.contains(pins[name]), f"{name} {pins[name]}: make lock"


def test_extras_named_to_users_exist(project: dict[str, Any]) -> None:
    extras = set(project["project"]["optional-dependencies"])
    for path in [*(ROOT / "service").rglob("*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for names in re.findall(r"tilewright\[([\w,]+)\]", path.read_text(encoding="utf-8")):
            assert set(names.split(",")) <= extras, path


def test_the_version_is_that_of_the_changelog(project: dict[str, Any]) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{project['project']['version']}]" in changelog
    assert version("tilewright") == project["project"]["version"]


def test_scripts_can_be_run() -> None:
    for name in (
        ".ci/run",
        ".ci/newest-python",
        "examples/c/build.sh",
        "examples/cmake-app/build.sh",
        "examples/notation.sh",
    ):
        path: Path = ROOT / name
        assert path.read_text(encoding="utf-8").startswith("#!")
