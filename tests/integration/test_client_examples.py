"""Runs the examples of the client library's documents on running services."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import running_cluster
from tests.support.repository import ROOT

README = ROOT / "pravega_streams" / "README.md"
GUIDE = ROOT / "docs" / "python-client.md"
pytestmark = pytest.mark.timeout(300)


def run_examples(document: Path, count: int, folder: Path) -> dict[str, Any]:
    """The names that the examples of a document leave behind."""
    examples = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert len(examples) == count
    with running_cluster(folder, containers=2) as cluster:
        names: dict[str, Any] = {"controller": cluster.controller_uri}
        for example in examples:
            exec(example, names)
    return names


def test_the_examples_of_the_readme_run(tmp_path: Path) -> None:
    names = run_examples(README, 7, tmp_path)
    assert sorted(names["events"]) == [b"order 1", b"order 2", b"order 3", b"order 4"]
    assert sorted(names["orders"]) == sorted(names["events"])
    assert names["line"] == b"opened at 8\n"
    assert names["price"] == b"4"
    assert names["StreamCut"].from_text(names["text"]).offsets == names["end"]


def test_the_examples_of_the_guide_run(tmp_path: Path) -> None:
    names = run_examples(GUIDE, 10, tmp_path)
    assert names["live"] == ["trades"]
    assert sorted(names["booked"]) == list(range(100))
    assert names["result"] == sum(range(100))
    assert (bytes(names["first"]), bytes(names["second"])) == (b"100", b"101")
    assert names["online"] == []
    assert sorted(names["audited"]) == list(range(102))
    assert names["cut"].offsets == names["evening"].offsets == names["end"]
    assert names["content"] == b"bytes, no events"
    assert names["shelf"] == {b"a": b"4", b"b": b"5", b"c": b"6"}
