"""``scripts/test`` fetches and builds what the named suites need, and no more."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.repository import ROOT


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        ("tidy", ""),
        ("unit property", ""),
        ("spark", "--minio"),
        ("contract", "--minio"),
        ("unit integration", "--minio --gcc"),
        ("browser", "--browser"),
        ("interop", "--maven"),
        ("spark --spark 4.1", "--spark 4.1"),
        ("unit --python 3.12", "--python 3.12"),
        ("", "--minio --gcc --browser"),
    ],
)
def test_a_suite_waits_for_what_it_needs_alone(words: str, needs: str, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/test", tmp_path / "scripts/test")
    setup = tmp_path / "scripts/setup"
    setup.write_text('#!/bin/sh\necho "$*"\nexit 7\n')
    setup.chmod(0o755)
    for suite in (ROOT / "tests").iterdir():
        (tmp_path / "tests" / suite.name).mkdir(parents=True)
    done = subprocess.run(
        [tmp_path / "scripts/test", *words.split()], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (7, f"{needs}\n"), done.stderr
