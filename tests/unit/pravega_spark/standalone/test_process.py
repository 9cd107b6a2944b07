"""Tests that waiting for a standalone ends with its logs when it takes too long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pravega_common.errors import Unavailable
from pravega_spark.standalone.process import StandaloneProcess


def test_a_child_that_is_not_restarted_in_time(tmp_path: Path) -> None:
    standalone = StandaloneProcess(tmp_path)
    standalone.ready_file.write_text(json.dumps({"pids": {"redis": 7}}))
    standalone.log_file.write_text("child died\n")
    with pytest.raises(Unavailable, match=r"redis was not started again within 0 s:\n--- standalone\.log\nchild died"):
        standalone.wait_restarted("redis", 7, timeout_s=0)
    standalone.wait_restarted("redis", 6, timeout_s=0)
