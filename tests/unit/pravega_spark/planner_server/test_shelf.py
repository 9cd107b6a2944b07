"""Modules that were imported ahead, and what a later import finds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pravega_spark.planner_server.shelf import Shelf

ONE = "shelf_test_one"
TWO = "shelf_test_two"
NAMES = (ONE, f"{ONE}.part", TWO)


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the path in front of that with a package and a module."""
    (tmp_path / "first").mkdir()
    package = tmp_path / "second" / ONE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"from {ONE} import part\nimport {TWO}\n")
    (package / "part.py").touch()
    (tmp_path / "second" / f"{TWO}.py").write_text("MARK = 'installed'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    finders = list(sys.meta_path)
    yield tmp_path / "first"
    sys.meta_path[:] = finders
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def ahead(first: Path) -> dict[str, ModuleType]:
    importlib.invalidate_caches()
    importlib.import_module(ONE)
    found = {name: sys.modules[name] for name in NAMES}
    Shelf(found, frozenset(sys.modules) - set(NAMES)).set_up()
    return found


def test_what_lies_on_the_shelf_is_not_imported(ahead: dict[str, ModuleType]) -> None:
    assert not set(NAMES) & set(sys.modules)


@pytest.mark.parametrize("name", NAMES)
def test_an_import_gives_the_very_modules(ahead: dict[str, ModuleType], name: str) -> None:
    specs = {name: module.__spec__ for name, module in ahead.items()}
    assert importlib.import_module(name) is ahead[name]
    assert all(sys.modules[name] is module for name, module in ahead.items())
    assert {name: module.__spec__ for name, module in ahead.items()} == specs
    assert not any(isinstance(finder, Shelf) for finder in sys.meta_path)


@pytest.mark.parametrize("hidden", [ONE, TWO])
def test_one_that_is_hidden_leaves_all_of_them_out(ahead: dict[str, ModuleType], first: Path, hidden: str) -> None:
    """Those that were imported ahead know each other: none may be mixed with others."""
    (first / f"{hidden}.py").write_text("MARK = 'of the job'\n")
    importlib.invalidate_caches()
    assert importlib.import_module(TWO) is not ahead[TWO]
    assert importlib.import_module(ONE) is not ahead[ONE]
    assert importlib.import_module(hidden).MARK == "of the job"


def test_one_that_is_gone_is_not_found(ahead: dict[str, ModuleType], first: Path) -> None:
    (first.parent / "second" / f"{TWO}.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(TWO)


def test_modules_without_a_file_come_back_with_the_others(first: Path) -> None:
    importlib.invalidate_caches()
    importlib.import_module(ONE)
    made = ModuleType("shelf_test_made")
    found = {**{name: sys.modules[name] for name in NAMES}, made.__name__: made}
    sys.modules[made.__name__] = made
    Shelf(found, frozenset(sys.modules) - set(found)).set_up()
    assert importlib.import_module(ONE) is found[ONE]
    assert sys.modules.pop(made.__name__) is made


def test_a_module_of_a_loaded_package_comes_back_alone(first: Path) -> None:
    importlib.invalidate_caches()
    importlib.import_module(ONE)
    found = {name: sys.modules[name] for name in (f"{ONE}.part", TWO)}
    Shelf(found, frozenset(sys.modules) - set(found)).set_up()
    (first / f"{TWO}.py").write_text("MARK = 'of the job'\n")
    importlib.invalidate_caches()
    assert importlib.import_module(f"{ONE}.part") is found[f"{ONE}.part"]
    assert TWO not in sys.modules
    assert importlib.import_module(TWO).MARK == "of the job"
