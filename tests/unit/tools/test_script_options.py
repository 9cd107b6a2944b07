"""Options of the scripts that lack their value are refused with a sentence, before anything is set up."""

from __future__ import annotations

import subprocess

import pytest

from tests.tidy.test_tidy import ROOT


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["test", "unit", "--python"], "scripts/test: --python needs a version, for example 3.12"),
        (["test", "spark", "--spark"], "scripts/test: --spark needs a version, for example 4.1"),
        (["setup", "--python"], "setup: --python needs a version, for example 3.12"),
        (["setup", "--spark"], "setup: --spark needs a version, for example 4.1"),
    ],
)
def test_an_option_without_its_value(command: list[str], reason: str) -> None:
    program, *arguments = command
    done = subprocess.run(
        [str(ROOT / "scripts" / program), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (2, f"{reason}\n")
