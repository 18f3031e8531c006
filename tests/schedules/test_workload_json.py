"""Workload documents: round trips, the schema, and refusals of everything hostile."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from typing import Any

import jsonschema  # it has no stubs
import pytest

from tests.support.paths import ROOT
from tests.support.schedules.tuples import ARGMAX
from tilewright.schedules import operators
from tilewright.schedules.algebra.index_text import parse_condition, parse_index
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.workload.strict_json import parse_json_text
from tilewright.schedules.workload.workload import Workload

SCHEMA = json.loads((ROOT / "docs" / "workload.schema.json").read_text())
EXAMPLES = [
    operators.build("conv2d_nhwc", {"H": 9, "W": 9, "CI": 4, "CO": 4, "K": 3, "groups": 2},
                    pad=1, epilogue="bias+gelu"),
    operators.build("conv2d_transpose_nhwc", H=3, W=3, CI=2, CO=2, K=3, stride=2),
    operators.build("max_pool2d_nhwc", {"H": 5, "W": 5, "C": 2, "K": 3, "pad": 1}),
    operators.build("matmul", M=4, N=4, K=4, dtype="u8s8s32", epilogue="requant", constant="B"),
    operators.build("layernorm_mn", M=4, N=4),
    from_notation("Y[i,j] = where(X[i] < X[j] || i == j, f32(i - 2*j), X[i % 3])",
                  {"X": ("f32", (4,))}),
    replace(ARGMAX, name="argmax"),
]  # fmt: skip


@pytest.mark.parametrize("workload", EXAMPLES, ids=lambda w: w.name[:20])
def test_documents_read_back_and_satisfy_the_schema(workload: Workload) -> None:
    for each in (workload, workload.normalised()):
        text = json.dumps(each.to_json())
        assert Workload.from_text(text) == each
        assert Workload.from_text(text.encode()).key == workload.key
        jsonschema.validate(json.loads(text), SCHEMA)


def test_the_schema_itself_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


MATMUL = operators.matmul(M=2, N=3, K=4).to_json()
BODY = "/stages/0/body"


def changed(pointer: str, value: object) -> dict[str, Any]:
    """The matmul document with the value at `pointer` replaced."""
    document = copy.deepcopy(MATMUL)
    *path, last = pointer.split("/")[1:]
    here: Any = document
    for step in path:
        here = here[int(step)] if isinstance(here, list) else here[step]
    here[int(last) if isinstance(here, list) else last] = value
    return document


LOAD = {"op": "load", "tensor": "A", "index": ["i", "k"]}


@pytest.mark.parametrize(
    ("pointer", "value", "code", "at"),
    [
        ("/version", 2, "bad_version", "/version"),
        ("/version", True, "bad_version", "/version"),
        ("/extra", 1, "unknown_field", ""),
        ("/name", 3, "bad_document", "/name"),
        ("/name", "x" * 300, "bad_name", "/name"),
        ("/name", "a\x00b", "bad_name", "/name"),
        ("/declared_flops", -1, "bad_document", "/declared_flops"),
        ("/declared_flops", 2**64, "bad_document", "/declared_flops"),
        ("/inputs", {}, "bad_document", "/inputs"),
        ("/inputs/0", [], "bad_document", "/inputs/0"),
        ("/inputs/0", {"name": "A", "dtype": "f32"}, "missing_field", "/inputs/0"),
        ("/inputs/0/name", "a b", "bad_name", "/inputs/0/name"),
        ("/inputs/0/name", None, "bad_document", "/inputs/0/name"),
        ("/inputs/1/name", "A", "duplicate", "/inputs/1"),
        ("/inputs/0/dtype", "f128", "bad_dtype", "/inputs/0/dtype"),
        ("/inputs/0/dtype", "i1", "bad_dtype", "/inputs/0/dtype"),
        ("/inputs/0/shape/1", 0, "bad_extent", "/inputs/0/shape/1"),
        ("/inputs/0/shape/1", -5, "bad_extent", "/inputs/0/shape/1"),
        ("/inputs/0/shape/1", 4.0, "bad_extent", "/inputs/0/shape/1"),
        ("/inputs/0/shape/1", True, "bad_extent", "/inputs/0/shape/1"),
        ("/inputs/0/shape/1", 10**4000, "bad_extent", "/inputs/0/shape/1"),
        ("/inputs/0/shape", [1] * 9, "too_large", "/inputs/0/shape"),
        ("/inputs/0/shape", [], "bad_rank", f"{BODY}/a"),
        ("/inputs/0/constant", 1, "bad_document", "/inputs/0/constant"),
        ("/stages/0/axes/0/1", 5, "out_of_bounds", "/stages/0/body/a/index/0"),
        ("/stages/0/axes/0", ["i"], "bad_document", "/stages/0/axes/0"),
        ("/stages/0/axes/1", ["i", 3], "duplicate", "/stages/0/axes"),
        ("/stages/0/axes", [["i", 2]] * 9, "too_large", "/stages/0/axes"),
        ("/stages/0/dtype", "f64", "dtype_clash", BODY),
        ("/stages/0/reducer", "mean", "bad_reduction", "/stages/0/reducer"),
        ("/stages/0/reduce_axes", [], "bad_reduction", "/stages/0/reduce_axes"),
        ("/stages/0/reduce_axes", [["k", 4], ["z", 2]], "unused_axis", "/stages/0/reduce_axes"),
        (BODY, 3, "bad_document", BODY),
        (BODY, {}, "unknown_op", f"{BODY}/op"),
        (BODY, {"op": "power"}, "unknown_op", f"{BODY}/op"),
        (BODY, {"op": "mul", "a": LOAD}, "missing_field", BODY),
        (BODY, {"op": "neg", "x": LOAD, "y": 1}, "unknown_field", BODY),
        (f"{BODY}/a/tensor", "Z", "unknown_tensor", f"{BODY}/a/tensor"),
        (f"{BODY}/a/tensor", "C", "unknown_tensor", f"{BODY}/a/tensor"),
        (f"{BODY}/a/index", ["i"], "bad_rank", f"{BODY}/a"),
        (f"{BODY}/a/index/0", "q", "unknown_axis", f"{BODY}/a/index/0"),
        (f"{BODY}/a/index/0", "i + 1", "out_of_bounds", f"{BODY}/a/index/0"),
        (f"{BODY}/a/index/0", "i +", "bad_syntax", f"{BODY}/a/index/0"),
        (f"{BODY}/a/index/0", "i * j", "bad_index", f"{BODY}/a/index/0"),
        (f"{BODY}/a/index/0", "i // 0", "bad_index", f"{BODY}/a/index/0"),
        (f"{BODY}/a/index/0", "9" * 30, "bad_index", f"{BODY}/a/index/0"),
        (f"{BODY}/a/index/0", 10**4000, "bad_index", f"{BODY}/a/index/0"),
        (f"{BODY}/a/index/0", "(" * 500, "too_deep", f"{BODY}/a/index/0"),
        (f"{BODY}/a/index/0", None, "bad_document", f"{BODY}/a/index/0"),
        (f"{BODY}/a", {"op": "const", "value": 1, "dtype": "f64"}, "dtype_clash", BODY),
        (f"{BODY}/a", {"op": "const", "value": "x", "dtype": "f32"}, "bad_document",
         f"{BODY}/a/value"),
        (f"{BODY}/a", {"op": "const", "value": "inf", "dtype": "i32"}, "bad_document",
         f"{BODY}/a/value"),
        (f"{BODY}/a", {"op": "const", "value": 300, "dtype": "i8"}, "bad_constant",
         f"{BODY}/a/value"),
        (f"{BODY}/a", {"op": "const", "value": 1e300, "dtype": "f32"}, "bad_constant",
         f"{BODY}/a/value"),
        (f"{BODY}/a", {"op": "const", "value": float("nan"), "dtype": "f32"}, "bad_constant",
         f"{BODY}/a/value"),
        (f"{BODY}/a", {"op": "const", "value": 10**4000, "dtype": "f32"}, "bad_constant",
         f"{BODY}/a/value"),
        (f"{BODY}/a", {"op": "cast", "x": LOAD, "dtype": "bool"}, "dtype_clash", BODY),
        (f"{BODY}/a", {"op": "all", "conds": []}, "bad_node", f"{BODY}/a"),
        (f"{BODY}/a", {"op": "all", "conds": ["i >= 0"]}, "dtype_clash", BODY),
        (f"{BODY}/a", {"op": "select", "cond": LOAD, "on_true": LOAD, "on_false": LOAD},
         "bad_dtype", f"{BODY}/a/cond"),
        (f"{BODY}/a", {"op": "index", "index": "i", "dtype": "i8"}, "bad_dtype", f"{BODY}/a"),
        ("/outputs", [], "bad_workload", "/outputs"),
        ("/outputs", ["A"], "unknown_tensor", "/outputs/0"),
        ("/outputs", ["C", "C"], "duplicate", "/outputs/1"),
        ("/outputs/0", 7, "bad_document", "/outputs/0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_a_code_and_a_pointer(
    pointer: str, value: object, code: str, at: str
) -> None:
    with pytest.raises(WorkloadError, match=r".+") as caught:
        Workload.from_json(changed(pointer, value))
    assert (caught.value.code, caught.value.pointer) == (code, at)


@pytest.mark.parametrize("document", [None, 3, "x", [], True, float("nan")])
def test_a_document_is_an_object(document: object) -> None:
    with pytest.raises(WorkloadError, match="needs an object"):
        Workload.from_json(document)


def nested_body(depth: int) -> dict[str, Any]:
    body: dict[str, Any] = LOAD
    for _ in range(depth):
        body = {"op": "neg", "x": body}
    return body


def test_deep_documents_are_refused_without_recursion() -> None:
    Workload.from_json(changed(f"{BODY}/a", nested_body(50)))
    with pytest.raises(WorkloadError, match="56 levels"):
        Workload.from_json(changed(f"{BODY}/a", nested_body(60)))
    with pytest.raises(WorkloadError, match="10000 values"):
        Workload.from_json(changed(f"{BODY}/a", nested_body(sys.getrecursionlimit() * 10)))


def test_wide_documents_are_refused() -> None:
    stages = [
        {"name": f"T{n}", "dtype": "f32", "axes": [["i", 2]],
         "body": {"op": "load", "tensor": "A", "index": ["i", 0]}}
        for n in range(65)
    ]  # fmt: skip
    with pytest.raises(WorkloadError, match="at most 64 entries, got 65"):
        Workload.from_json({**MATMUL, "stages": stages})
    with pytest.raises(WorkloadError, match="10000 values"):
        Workload.from_json({**MATMUL, "outputs": ["C"] * 10_001})


def test_sizes_are_multiplied_in_python_integers() -> None:
    big = 2**31 - 1
    document = changed("/inputs/0/shape", [big] * 8)
    document["stages"][0]["body"]["a"]["index"] = ["i", "k", 0, 0, 0, 0, 0, 0]
    with pytest.raises(WorkloadError, match=f"need {4 * big**8 + 48 + 24} bytes") as caught:
        Workload.from_json(document)
    assert caught.value.code == "too_large"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (b"[" * 100_000, "too_large", "64 levels deep"),
        (b'{"a":' * 100_000, "too_large", "64 levels deep"),
        (b"[1" + b",1" * 20_000 + b"]", "too_large", "10000 values"),
        (b" " * (2 << 20), "too_large", "at most 1048576"),
        (b'{"a":1,"a":2}', "bad_json", "key 'a' is given twice"),
        (b'{"a":NaN}', "bad_json", "NaN is not a number"),
        (b'{"a":-Infinity}', "bad_json", '"inf" and "-inf"'),
        (b'{"a":1e400}', "bad_json", "beyond the range"),
        (b"1" * 5000, "bad_json", "at most 40"),
        (b"1." + b"1" * 5000, "bad_json", "at most 40"),
        (b'{"a":"\\ud800"}', "bad_json", "surrogate"),
        (b'["\\ud800"]', "bad_json", "surrogate"),
        (b'{"\\udc00":1}', "bad_json", "surrogate"),
        (b"\xff\xfe", "bad_json", "not UTF-8"),
        (b"{", "bad_json", "not JSON: .* at line 1, column"),
        (b"", "bad_json", "not JSON"),
        (b'{"a":1}x', "bad_json", "Extra data"),
        ("\ud800", "bad_json", "not UTF-8"),
    ],
)
def test_hostile_text_is_refused(text: bytes | str, code: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        parse_json_text(text)
    assert caught.value.code == code


def test_brackets_in_strings_are_not_levels() -> None:
    text = json.dumps({"a": "[" * 200 + '"{\\'})
    assert parse_json_text(text) == {"a": "[" * 200 + '"{\\'}


@pytest.mark.parametrize(
    "text", ["0", "-3", "i", "2*h + r - 1", "-i + 3", "(o + r)//2 + 4*((i + 1)%3)", "i//2//3"]
)
def test_indices_read_back(text: str) -> None:
    index = parse_index(text)
    assert parse_index(str(index)) == index


@pytest.mark.parametrize("text", ["i >= 1", "i < 3", "2*i + r <= 7", "i == j", "i > j", "0 >= 3"])
def test_conditions_read_back(text: str) -> None:
    condition = parse_condition(text)
    assert parse_condition(str(condition)) == condition


def test_a_condition_compares_two_indices() -> None:
    for text in ("i", "i != 3", "i + 1", "1.5"):
        with pytest.raises(WorkloadError, match="a condition compares two indices"):
            parse_condition(text)
