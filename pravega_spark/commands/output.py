"""Prints the results of commands: tables for people, one JSON document for programs.

Rich draws on a terminal. Into a pipe or a file a table goes as plain columns, of any width, and Rich is not imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from pravega_common.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console

plain_width_chars: Final = 160
"""Width of what Rich prints where it does not go to a terminal."""
_GAP: Final = "  "
"""Between two columns of a table that does not go to a terminal."""


def console() -> Console:
    """Returns the console of standard output; wide enough for whole rows where it is no terminal.

    Texts in brackets are no markup unless ``print`` is asked to take them so: tags, names and errors have some.
    """
    from rich.console import Console

    made = Console(highlight=False, markup=False, emoji=False)
    if made.is_terminal:
        return made
    return Console(highlight=False, markup=False, emoji=False, width=plain_width_chars)


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
    """A number with its noun: ``1 event``, ``1,000 events``, ``2 batches``, ``0 entries``."""
    if thing.endswith("y") and not thing.endswith(("ay", "ey", "oy", "uy")):
        plural = f"{thing[:-1]}ies"
    else:
        plural = f"{thing}es" if thing.endswith(("s", "x", "ch", "sh")) else f"{thing}s"
    return f"{count:,} {thing if count == 1 else plural}"


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under their columns; numbers are set to the right, with separators."""
    is_number = [
        bool(rows) and all(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))
    ]
    texts = [[cell(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        _print_columns(title, [list(columns), *texts], is_number)
        return
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for column, right in zip(columns, is_number, strict=True):
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in texts:
        table.add_row(*row)
    console().print(table)


def print_facts(title: str, facts: Sequence[tuple[str, object]]) -> None:
    """Prints names and values, one a line."""
    texts = [[name, cell(value)] for name, value in facts]
    if not sys.stdout.isatty():
        _print_columns(title, texts, [False, False])
        return
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for row in texts:
        table.add_row(*row)
    console().print(table)


def print_members(kind: str, members: Sequence[tuple[str, str]], as_json: bool, *, thing: str) -> None:
    """Prints members of scopes: the scope and the name of each. ``thing``: what counts them, as in "reader group"."""
    if as_json:
        print_json([{"scope": scope, kind: name} for scope, name in members])
    else:
        print_table(counted(len(members), thing), ["scope", kind], members)


def print_deleted(kind: str, name: str, deleted: bool, as_json: bool) -> None:
    """Prints whether this call deleted something, or another one did."""
    if as_json:
        print_json({kind: name, "deleted": deleted})
    else:
        print(f"{name} {'deleted' if deleted else 'was deleted meanwhile'}")


def _print_columns(title: str, rows: Sequence[Sequence[str]], is_number: Sequence[bool]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(title)
    for row in rows:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, is_number, strict=True)
        ]
        print(_GAP.join(cells).rstrip())


def cell(value: object) -> str:
    """Formats a value for a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
