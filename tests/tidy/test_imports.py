"""Checks the direction of imports: no circle, and rooms that do not know each other.

Reads every source file with ``ast``; imports behind ``TYPE_CHECKING`` and inside functions count like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.test_tidy import PACKAGES, ROOT, sources, tree_of

STRANGERS = [
    ("pravega_spark.source", "pravega_spark.sink"),
    ("pravega_spark.sink", "pravega_spark.source"),
    ("pravega_common.wire", "pravega_common.services"),
    ("segment_service.contracts", "segment_service.container"),
]
SERVICE_USERS = (
    "pravega_common.services",
    "segment_service",
    "controller_service",
    "pravega_spark.standalone",
    "pravega_spark.commands.user",
)
NOT_IN_VALUES = {"asyncio", "socket", "threading", "subprocess", "redis", "minio", "aiohttp", "uvloop", "http"}
"""What ``pravega_common`` does without outside ``runtime/`` and ``services/``."""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> Mapping[str, Path]:
    return {name_of(path): path for path in sources()}


@cache
def arrows() -> Mapping[str, frozenset[str]]:
    """The modules of this repository that each module imports."""
    found = {}
    for module, path in modules().items():
        targets = set()
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    targets.add(inner if inner in modules() else node.module)
            elif isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
        found[module] = frozenset(target for target in targets if target in modules() and target != module)
    return found


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's strongly connected components of two or more)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[-len(group) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def test_the_search_finds_a_circle() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c"]]


def test_no_module_imports_itself_through_others() -> None:
    assert not circles(arrows())


def room_of(module: str) -> str:
    return str(modules()[module].parent.relative_to(ROOT))


def test_no_room_imports_itself_through_others() -> None:
    """A room is a folder below a package; modules of the package itself are in none."""
    graph: dict[str, set[str]] = {}
    for module, targets in arrows().items():
        if "/" in room_of(module):
            rooms = {room_of(target) for target in targets} - {room_of(module), *PACKAGES}
            graph.setdefault(room_of(module), set()).update(rooms)
    assert not circles(graph)


@pytest.mark.parametrize(("room", "other"), STRANGERS)
def test_rooms_that_do_not_know_each_other(room: str, other: str) -> None:
    wrong = {
        f"{module} imports {target}"
        for module, targets in arrows().items()
        if module.startswith(f"{room}.")
        for target in targets
        if target.startswith(other)
    }
    assert not wrong


def test_only_services_import_what_services_share() -> None:
    wrong = {
        f"{module} imports {target}"
        for module, targets in arrows().items()
        if not module.startswith(SERVICE_USERS)
        for target in targets
        if target.startswith("pravega_common.services")
    }
    assert not wrong


def test_values_and_rules_do_no_io() -> None:
    wrong = set()
    for module, path in modules().items():
        if module.startswith("pravega_common.") and not module.startswith(
            ("pravega_common.runtime", "pravega_common.services")
        ):
            for node in ast.walk(tree_of(path)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
                wrong |= {f"{module} imports {name}" for name in names if name.partition(".")[0] in NOT_IN_VALUES}
    assert not wrong
