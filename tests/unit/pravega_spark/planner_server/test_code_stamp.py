"""Code on disk that changes, and files that an import would find instead."""

from __future__ import annotations

import importlib
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pravega_spark.planner_server.code_stamp import CodeStamp

NAME = "module_of_a_code_stamp"


class Tree:
    """A folder on the path in front of the one that has the module."""

    def __init__(self, folder: Path) -> None:
        self.first = folder / "first"
        self.second = folder / "second"
        self.first.mkdir()
        (self.second / NAME).mkdir(parents=True)
        (self.second / NAME / "__init__.py").write_text("from . import inner\n")
        (self.second / NAME / "inner.py").write_text("VALUE = 1\n")

    def imported(self, began_ns: int) -> CodeStamp:
        importlib.invalidate_caches()
        importlib.import_module(NAME)
        modules = {name: module for name, module in sys.modules.items() if name.startswith(NAME)}
        return CodeStamp(modules, [str(self.first), str(self.second), str(self.first / "nowhere")], began_ns)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    made = Tree(tmp_path)
    monkeypatch.setattr(sys, "path", [str(made.first), str(made.second), *sys.path])
    yield made
    for name in [name for name in sys.modules if name.startswith(NAME)]:
        del sys.modules[name]


@pytest.fixture
def stamp(tree: Tree) -> CodeStamp:
    return tree.imported(time.time_ns() + 10**9)


def test_nothing_has_changed(stamp: CodeStamp) -> None:
    assert not stamp.changed()


def test_files_of_other_names_change_nothing(stamp: CodeStamp, tree: Tree) -> None:
    (tree.first / "data.csv").touch()
    (tree.first / "job.py").touch()
    (tree.second / "spark-warehouse").mkdir()
    assert not stamp.changed()


def test_a_changed_file(stamp: CodeStamp, tree: Tree) -> None:
    (tree.second / NAME / "inner.py").write_text("VALUE = 2\n")
    assert stamp.changed()


def test_a_changed_file_with_the_time_and_the_size_of_before(stamp: CodeStamp, tree: Tree) -> None:
    file = tree.second / NAME / "inner.py"
    before = file.stat()
    file.write_text("VALUE = 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert stamp.changed()


def test_a_removed_file(stamp: CodeStamp, tree: Tree) -> None:
    (tree.second / NAME / "inner.py").unlink()
    assert stamp.changed()


@pytest.mark.parametrize("name", [f"{NAME}.py", f"{NAME}.cpython-311-x86_64-linux-gnu.so", "sitecustomize.py"])
def test_a_file_that_an_import_would_find_first(stamp: CodeStamp, tree: Tree, name: str) -> None:
    (tree.first / name).touch()
    assert stamp.changed()


def test_a_folder_that_becomes_a_package(tree: Tree) -> None:
    (tree.first / NAME).mkdir()
    stamp = tree.imported(time.time_ns() + 10**9)
    assert not stamp.changed()
    (tree.first / NAME / "__init__.py").touch()
    assert stamp.changed()


def test_a_folder_of_the_path_that_comes_later(stamp: CodeStamp, tree: Tree) -> None:
    (tree.first / "nowhere").mkdir()
    assert not stamp.changed()
    (tree.first / "nowhere" / f"{NAME}.py").touch()
    assert stamp.changed()


def test_what_adds_to_the_path(stamp: CodeStamp, tree: Tree) -> None:
    (tree.second / "more.pth").write_text("/elsewhere\n")
    assert stamp.changed()


def test_a_changed_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"{NAME}.py", "VALUE = 1\n")
    monkeypatch.syspath_prepend(str(archive))
    found = importlib.import_module(NAME)
    try:
        stamp = CodeStamp({NAME: found}, [str(archive)], time.time_ns() + 10**9)
        assert not stamp.changed()
        archive.write_bytes(archive.read_bytes())
        assert stamp.changed()
    finally:
        del sys.modules[NAME]


def test_a_file_that_changed_while_it_was_imported(tree: Tree) -> None:
    began_ns = time.time_ns()
    (tree.second / NAME / "inner.py").write_text("VALUE = 3\n")
    assert tree.imported(began_ns).changed()


def test_modules_without_files() -> None:
    assert not CodeStamp({"made": ModuleType("made"), "sys": sys}, [], 0).changed()
