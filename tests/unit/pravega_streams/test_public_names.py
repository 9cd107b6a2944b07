"""Tests the public names of the client library: typed, lazy, and listed in its README."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import pravega_streams
from tests.support.repository import ROOT

FOLDER = ROOT / "pravega_streams"


def test_the_stub_declares_the_names_that_there_are() -> None:
    tree = ast.parse((FOLDER / "__init__.pyi").read_text())
    declared = {
        alias.name: node.module for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert declared == vars(pravega_streams)["_MODULES"], "the table that the stub repeats"


@pytest.mark.parametrize("name", vars(pravega_streams)["__all__"])
def test_a_name_is_there_and_in_the_readme(name: str) -> None:
    assert getattr(pravega_streams, name) is not None
    assert f"`{name}`" in (FOLDER / "README.md").read_text()


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = getattr(pravega_streams, "Nothing")  # noqa: B009 - for who writes it with a dot


def test_a_range_is_read_without_the_clients_of_the_controller() -> None:
    statement = "import sys, pravega_streams.batch.range_reader; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", statement], timeout=120).returncode == 0
