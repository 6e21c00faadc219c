"""A word means one thing: no two classes have the same name."""

import ast
from collections import defaultdict

from tests.project.source import modules


def classes() -> dict[str, list[str]]:
    """Return class name -> modules that define the class, without the students' answers."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        if module.startswith("ddpkit.answers"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    return found


def test_no_class_name_has_two_meanings():
    twice = {name: homes for name, homes in classes().items() if len(homes) > 1}
    assert twice == {}
