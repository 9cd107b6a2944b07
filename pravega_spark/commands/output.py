"""Prints the results of commands: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import typer
from rich.console import Console
from rich.table import Table

from pravega_common.errors import InvalidArgument

plain_width_chars: Final = 160
"""Width of tables that do not go to a terminal."""


def console() -> Console:
    """Returns the console of standard output; wide enough for whole rows where it is no terminal."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=plain_width_chars)


def say(text: str) -> None:
    """Prints a line for people, beside what goes through the pipe."""
    print(text, file=sys.stderr)


def confirm(question: str, *, unasked: str) -> None:
    """Asks before something that cannot be undone; ends the command with status 1 where the answer is no.

    ``InvalidArgument``, which begins with ``unasked``, where nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise InvalidArgument(f"{unasked} needs --yes where nobody can be asked")
    if not typer.confirm(question, err=True):
        say("nothing was changed")
        raise typer.Exit(1)


def counted(count: int, thing: str) -> str:
    """A number with its noun: ``1 event``, ``1,000 events``, ``2 batches``."""
    plural = f"{thing}es" if thing.endswith(("s", "x", "ch", "sh")) else f"{thing}s"
    return f"{count:,} {thing if count == 1 else plural}"


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under their columns; numbers are set to the right, with separators."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console().print(table)


def print_facts(title: str, facts: Sequence[tuple[str, object]]) -> None:
    """Prints names and values, one a line."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, cell(value))
    console().print(table)


def cell(value: object) -> str:
    """Formats a value for a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
