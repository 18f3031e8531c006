"""docs/workload.md says what the code does: its examples run, its lists are complete."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # it has no stubs
import pytest

from tests.support.paths import ROOT
from tilewright import schedules
from tilewright.schedules import operators
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.workload import Workload

TEXT = (ROOT / "docs" / "workload.md").read_text()
CODE = re.compile(r'"((?:bad|unknown|missing|too|unused|out_of|dtype|shape)_[a-z]+|duplicate)"')
PACKAGE = Path(schedules.__file__).parent
FRONT_END = ("algebra", "workload", "frontend", "operators")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_python_example_is_the_library_convolution() -> None:
    scope: dict[str, object] = {}
    exec(blocks("python")[0], scope)
    wanted = operators.conv2d_nhwc(H=56, W=56, CI=64, CO=64, K=3, pad=1, constant="W")
    conv = scope["conv"]
    assert isinstance(conv, Workload)
    assert conv.key == wanted.key


def test_the_array_example_has_the_described_stages_and_keys() -> None:
    scope: dict[str, Any] = {}
    (text,) = (block for block in blocks("python") if "layer = " in block)
    exec(text, scope)
    layer = scope["layer"]
    assert isinstance(layer, Workload)
    assert [s.tensor.shape for s in layer.stages] == [
        (8, 56, 32), (8, 56), (8, 56, 32), (8, 56), (8, 28, 32),
    ]  # fmt: skip
    x = schedules.placeholder("x", (8, 32))
    e = schedules.exp(x - x.max(-1, keepdims=True))
    assert Workload.of(e / e.sum(-1, keepdims=True)).key == operators.softmax_mn(M=8, N=32).key
    a, b, bias = (
        schedules.placeholder(name, shape)
        for name, shape in (("a", (8, 4)), ("b", (4, 32)), ("bias", (32,)))
    )
    wanted = operators.matmul(M=8, N=32, K=4, epilogue="bias+relu")
    assert Workload.of(schedules.relu(a @ b + bias)).key == wanted.key


def test_the_json_example_is_a_document() -> None:
    document = json.loads(blocks("json")[0])
    jsonschema.validate(document, json.loads((ROOT / "docs" / "workload.schema.json").read_text()))
    assert Workload.from_json(document).key == operators.matmul(M=2, N=3, K=4, constant="B").key


def test_the_canonical_bytes_shown_are_those_of_the_matmul() -> None:
    workload = operators.matmul(M=2, N=3, K=4)
    assert workload.canonical_bytes.decode() in TEXT
    assert f"with the key `{workload.key}`" in TEXT


@pytest.mark.parametrize("line", blocks("text")[0].strip().splitlines())
def test_the_notation_examples_are_notation(line: str) -> None:
    shapes = {
        "A": (4, 5), "B": (5, 6), "X": (1, 8, 8, 3), "W": (3, 3, 3, 2), "b": (2,),
    }  # fmt: skip
    if "e[i,j]" in line:
        shapes["X"] = (3, 4)
    tensors = {n: ("f32", s) for n, s in shapes.items() if f"{n}[" in line}
    assert from_notation(line, tensors).outputs


def test_every_error_code_is_listed() -> None:
    codes = {
        code
        for name in FRONT_END
        for path in (PACKAGE / name).rglob("*.py")
        for code in CODE.findall(path.read_text())
    } | {
        code
        for name in ("limits.py", "spelling.py")
        for code in CODE.findall((PACKAGE / name).read_text())
    }
    listed = set(re.findall(r"`([a-z_]+)`", TEXT.split("\nCodes: ")[1].split("\n\n")[0]))
    assert listed == codes | {"bad_workload"}
