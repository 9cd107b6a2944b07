"""Checks the tables of commands: plain columns into a pipe, Rich's on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from pravega_spark.commands.output import counted, plain_width_chars, print_facts, print_table

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


def test_numbers_have_their_nouns() -> None:
    given = [(1, "event"), (1_000, "event"), (2, "batch"), (1, "access entry"), (2, "access entry"), (0, "key")]
    texts = [counted(count, thing) for count, thing in given]
    assert texts == ["1 event", "1,000 events", "2 batches", "1 access entry", "2 access entries", "0 keys"]


def test_a_table_without_rows_has_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("0 streams", ["scope", "stream"], [])
    assert capsys.readouterr().out == "0 streams\nscope  stream\n"


def test_facts_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts("s/t", [("state", "open"), ("size in bytes", 1_000), ("tag", None)])
    assert capsys.readouterr().out == "s/t\nstate          open\nsize in bytes  1,000\ntag\n"


def test_a_terminal_gets_a_drawn_table() -> None:
    shown = on_terminal("print_table('1 stream', ['stream'], [('s/t',)])")
    assert "s/t" in shown
    assert "┃" in shown


def test_brackets_and_colons_of_users_are_no_markup() -> None:
    shown = on_terminal(
        "print_table('1 [sink]', ['name'], [('[etl] orders :fire:',)]); print_facts('t', [('a', '[/b]')])"
    )
    assert "1 [sink]" in shown and "[etl] orders :fire:" in shown and "[/b]" in shown


def test_a_finding_in_brackets_is_shown_as_it_is() -> None:
    shown = on_terminal("_print(Finding('redis', False, 'no [/usr/bin/redis]', 'install [it]'))")
    assert "failed" in shown and "no [/usr/bin/redis]" in shown and "install [it]" in shown
    assert "[bold red]" not in shown


def on_terminal(call: str) -> str:
    """Returns what a call prints to a terminal."""
    code = (
        "from pravega_spark.commands.output import print_facts, print_table\n"
        "from pravega_spark.commands.doctor import _print\n"
        f"from pravega_spark.commands.findings import Finding\n{call}"
    )
    master, terminal = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", code], stdout=terminal, check=True, timeout=60)
        return os.read(master, 64 * 1024).decode()
    finally:
        os.close(terminal)
        os.close(master)
