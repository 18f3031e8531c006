"""A class name stands for one thing in the whole product."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.support.import_graph import modules


def test_no_class_name_is_used_twice() -> None:
    defined = defaultdict(list)
    for module in modules().values():
        for node in ast.walk(ast.parse("\n".join(module.lines))):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(f"{module.name}:{node.lineno}")
    twice = {name: places for name, places in defined.items() if len(places) > 1}
    assert not twice, "give each of these a name of its own (docs/glossary.md)"
