"""The text with which a standalone says that it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_spark.standalone.options import StandaloneOptions
from pravega_spark.standalone.standalone import _print_ready


def test_a_path_is_printed_whole_and_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("/data/[prod]/[/]") / "a-long-name" / ("x" * 100)
    _print_ready(StandaloneOptions(data_dir=folder), {"redis": f"unix:{folder}/run/redis.sock"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"pravega-spark is ready. Data: {folder}"
    assert f"  {'redis':<16} unix:{folder}/run/redis.sock" in lines
