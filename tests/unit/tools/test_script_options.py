"""The scripts say how they are used, and what an option lacks, before anything is set up."""

from __future__ import annotations

import itertools
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


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("program", ["setup", "test", "drill"])
def test_help_is_the_comment_at_the_head_of_the_script(program: str, option: str) -> None:
    script = ROOT / "scripts" / program
    head = itertools.takewhile(lambda line: line.startswith("#"), script.read_text().splitlines()[1:])
    # Also from a folder that has no scripts.
    done = subprocess.run([str(script), option], capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [line.removeprefix("# ").removeprefix("#") for line in head]
