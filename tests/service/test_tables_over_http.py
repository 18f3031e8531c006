"""Every function and every element type of the tables is taken in a document over HTTP, and the
schema that is served says so."""

from __future__ import annotations

import jsonschema  # it has no stubs
import pytest
from fastapi.testclient import TestClient

from tests.support.service.records import HOST
from tilewright.schedules.algebra.functions import NAMED
from tilewright.schedules.dtypes import NUMBERS
from tilewright.schedules.frontend.notation import from_notation

TEXTS = {
    **{f"{name} of f32": (f"Y[i] = {name}(X[i])", "f32") for name in NAMED},
    **{f"a copy of {dtype}": ("Y[i] = X[i]", dtype.value) for dtype in NUMBERS},
}


@pytest.mark.parametrize(("text", "dtype"), TEXTS.values(), ids=list(TEXTS))
def test_it_is_taken_in_a_document(api: TestClient, text: str, dtype: str) -> None:
    document = from_notation(text, {"X": (dtype, (8,))}).to_json()
    body = {"workload": document, "target": HOST.to_json()}
    answer = api.post("/v1/jobs?validate_only=true", json=body)
    assert answer.status_code == 200, answer.text
    components = api.get("/openapi.json").json()["components"]
    root = {"$ref": "#/components/schemas/Workload", "components": components}
    jsonschema.validate(document, root)


def test_a_function_that_is_in_no_table_is_refused(api: TestClient) -> None:
    document = from_notation("Y[i] = exp(X[i])", {"X": ("f32", (8,))}).to_json()
    document["stages"][0]["body"]["op"] = "gamma"
    body = {"workload": document, "target": HOST.to_json()}
    answer = api.post("/v1/jobs?validate_only=true", json=body)
    assert answer.status_code == 422
    assert answer.json()["code"] == "unknown_op"
