"""Runs the examples of the client library's README on running services."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import running_cluster
from tests.support.repository import ROOT

README = ROOT / "pravega_streams" / "README.md"
pytestmark = pytest.mark.timeout(300)


def test_the_examples_of_the_readme_run(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) == 7
    with running_cluster(tmp_path, containers=2) as cluster:
        names: dict[str, Any] = {"controller": cluster.controller_uri}
        for example in examples:
            exec(example, names)
    assert sorted(names["events"]) == [b"order 1", b"order 2", b"order 3", b"order 4"]
    assert sorted(names["orders"]) == sorted(names["events"])
    assert names["line"] == b"opened at 8\n"
    assert names["price"] == b"4"
    assert names["StreamCut"].from_text(names["text"]).offsets == names["end"]
