"""Checks the tables of commands: plain columns into a pipe, Rich's on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from pravega_spark.commands.output import plain_width_chars, print_facts, print_table

LONG = "x" * (plain_width_chars + 40)


def test_a_table_in_a_pipe_is_plain_columns_of_any_width(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("2 streams", ["stream", "bytes", "open"], [("s/t", 1_234_567, True), (LONG, 8, False)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 streams"
    assert [line.split() for line in lines[1:]] == [
        ["stream", "bytes", "open"],
        ["s/t", "1,234,567", "yes"],
        [LONG, "8", "no"],
    ]
    assert {
        line.index(text) + len(text) for line, text in zip(lines[1:], ("bytes", "1,234,567", "8"), strict=True)
    } == {len(LONG) + len("  1,234,567")}, "numbers are set to the right"


def test_a_table_without_rows_has_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("0 streams", ["scope", "stream"], [])
    assert capsys.readouterr().out == "0 streams\nscope  stream\n"


def test_facts_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts("s/t", [("state", "open"), ("size in bytes", 1_000), ("tag", None)])
    assert capsys.readouterr().out == "s/t\nstate          open\nsize in bytes  1,000\ntag\n"


def test_a_terminal_gets_a_drawn_table() -> None:
    code = "from pravega_spark.commands.output import print_table; print_table('1 stream', ['stream'], [('s/t',)])"
    master, terminal = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", code], stdout=terminal, check=True, timeout=60)
        shown = os.read(master, 64 * 1024).decode()
    finally:
        os.close(terminal)
        os.close(master)
    assert "s/t" in shown
    assert "┃" in shown
