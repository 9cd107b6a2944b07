"""Checks the rules of the tests themselves: waits, contract suites, helpers that stand once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.tidy.test_imports import name_of
from tests.tidy.test_tidy import ROOT, relative, tree_of

TESTS = ROOT / "tests"
CONTRACTS = TESTS / "contract"
WITHOUT_REAL_TIME = ("tests/unit/", "tests/contract/", "tests/property/")
STILL_SLEEP = {
    "tests/property/crash_model.py",
    "tests/property/test_event_index.py",
    "tests/unit/controller_service/buckets/test_retention_job.py",
    "tests/unit/controller_service/workflows/test_random_faults.py",
    "tests/unit/controller_service/workflows/test_stream_workflows.py",
    "tests/unit/controller_service/workflows/test_workflow_crashes.py",
    "tests/unit/pravega_spark/commands/test_transaction_commands.py",
    "tests/unit/pravega_spark/standalone/test_log_page_cache.py",
    "tests/unit/segment_service/container/test_manager.py",
    "tests/unit/segment_service/host/test_hostile_input.py",
    "tests/unit/segment_service/plog/test_redis_connection.py",
    "tests/unit/segment_service/read_index/test_read_from_storage.py",
}
"""Files from before this rule. The list only gets shorter: a file that has waited with events once stays so."""
RUN_ELSEWHERE = {"plain_gateway": "tests/interop"}
"""Contracts whose adapters need servers that only another folder starts."""


@cache
def files_of_tests() -> tuple[Path, ...]:
    return tuple(sorted(TESTS.rglob("*.py")))


def sleeps(path: Path) -> Iterator[int]:
    """Lines that sleep for a number of seconds that stands there."""
    for node in ast.walk(tree_of(path)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep")
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, int | float)
            and node.args[0].value > 0
        ):
            yield node.lineno


def has_reason(path: Path, line: int) -> bool:
    """Whether a comment stands on the line or on the one above it."""
    lines = path.read_text().splitlines()
    return "#" in lines[line - 1] or lines[line - 2].lstrip().startswith("#")


@cache
def modules_of_tests() -> dict[str, Path]:
    return {name_of(path): path for path in files_of_tests()}


@cache
def names_in(path: Path) -> frozenset[str]:
    """Names that a module binds outside its classes and functions, and the modules beside an ``__init__``."""
    found = {child.stem for child in path.parent.iterdir()} if path.name == "__init__.py" else set()
    waiting: list[ast.AST] = [tree_of(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        else:
            waiting.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def test_names_that_tests_import_from_each_other_are_there() -> None:
    """Suites that run on other Sparks and Pythons import tests and fixtures of those that run here."""
    wrong = [
        f"{relative(path)}:{node.lineno}: {node.module} has no {alias.name}"
        for path in files_of_tests()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module in modules_of_tests()
        for alias in node.names
        if alias.name not in names_in(modules_of_tests()[node.module])
    ]
    assert not wrong


def test_property_tests_have_no_limit_of_time() -> None:
    """Neither for an example, nor for making one: a busy machine is slow at both."""
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_no_test_sleeps_without_a_reason_beside_it() -> None:
    wrong = [
        f"{relative(path)}:{line}: wait with tests/support/eventually.py, an event or ManualClock, or say why not"
        for path in files_of_tests()
        if relative(path).startswith(WITHOUT_REAL_TIME) and relative(path) not in STILL_SLEEP
        for line in sleeps(path)
        if not has_reason(path, line)
    ]
    assert not wrong


def test_eventually_is_defined_once() -> None:
    found = [
        f"{relative(path)}: {node.name}"
        for path in files_of_tests()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("eventually")
    ]
    home = "tests/support/eventually.py"
    assert found == [f"{home}: eventually", f"{home}: eventually_blocking"]


def classes(path: Path) -> Iterator[ast.ClassDef]:
    yield from (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef))


def is_suite(scope: ast.ClassDef) -> bool:
    """Whether a class holds tests that only its subclasses run."""
    return not scope.name.startswith("Test") and any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        for node in scope.body
    )


def class_name(contract: str) -> str:
    return "".join(word.capitalize() for word in contract.split("_")) + "Contract"


def contracts() -> dict[str, Path]:
    return {path.stem.removesuffix("_contract"): path for path in CONTRACTS.glob("*_contract.py")}


def test_suites_stand_in_the_folder_of_contracts_and_are_named_after_them() -> None:
    found = {(relative(path), scope.name) for path in files_of_tests() for scope in classes(path) if is_suite(scope)}
    assert found == {(relative(path), class_name(contract)) for contract, path in contracts().items()}


def test_every_contract_has_adapters_that_run_it() -> None:
    runs = {
        contract
        for contract in contracts()
        for path in (CONTRACTS / f"test_{contract}.py",)
        if path.exists() and any(class_name(contract) in map(ast.unparse, scope.bases) for scope in classes(path))
    }
    assert runs == contracts().keys() - RUN_ELSEWHERE.keys()


def test_the_folder_of_contracts_has_contracts_and_adapters_only() -> None:
    known = {"__init__.py", "conftest.py"}
    known |= {name for contract in contracts() for name in (f"{contract}_contract.py", f"test_{contract}.py")}
    assert not {path.name for path in CONTRACTS.glob("*.py")} - known


def test_the_readme_of_contracts_names_every_suite() -> None:
    text = (CONTRACTS / "README.md").read_text()
    assert not [path.name for path in contracts().values() if f"`{path.name}`" not in text]


def test_suites_that_can_be_secured_start_no_cluster_beside_the_switch() -> None:
    """One that a test starts itself would stay plain without anybody's having said why."""
    wrong = [
        f"{relative(path)}:{node.lineno}: use running_cluster, with as_is and the reason if it must stay as it is"
        for folder in ("integration", "spark", "browser")
        for path in sorted((TESTS / folder).rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("StandaloneProcess")
    ]
    assert not wrong


def test_clusters_that_stay_as_they_are_say_why() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno}: as_is is no reason of three words"
        for path in files_of_tests()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "running_cluster"
        for reason in (word.value for word in node.keywords if word.arg == "as_is")
        if isinstance(reason, ast.Constant) and len(str(reason.value).split()) < 3
    ]
    assert not wrong
