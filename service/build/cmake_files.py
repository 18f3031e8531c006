"""Where the package's CMake files are."""

from __future__ import annotations

from pathlib import Path


def cmake_dir() -> Path:
    """The folder to give as `Tilewright_DIR`, or in `CMAKE_PREFIX_PATH`."""
    return Path(__file__).parent / "cmake"
