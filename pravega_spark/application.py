"""Builds the application with its sub-commands.

A command that asks one thing should answer at once, and importing all commands takes longer than most questions. So a
run imports the module of the command that its arguments name and no other, and makes that command alone of its group.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Final

import typer
from typer.models import CommandInfo

from pravega_common.version import __version__

MODULES: Final = {
    "standalone": "pravega_spark.commands.services",
    "segment-store": "pravega_spark.commands.services",
    "controller": "pravega_spark.commands.services",
    "scope": "pravega_spark.commands.scope",
    "stream create": "pravega_spark.commands.stream",
    "stream scale": "pravega_spark.commands.stream",
    "stream seal": "pravega_spark.commands.stream",
    "stream delete": "pravega_spark.commands.stream",
    "stream info": "pravega_spark.commands.stream_info",
    "stream list": "pravega_spark.commands.stream_list",
    "stream cut": "pravega_spark.commands.stream_retention",
    "stream truncate": "pravega_spark.commands.stream_retention",
    "stream retain": "pravega_spark.commands.stream_retention",
    "stream transaction": "pravega_spark.commands.transaction",
    "event": "pravega_spark.commands.event",
    "sink": "pravega_spark.commands.sink",
    "subscriber": "pravega_spark.commands.subscriber",
    "group": "pravega_spark.commands.group",
    "table": "pravega_spark.commands.table",
    "cluster": "pravega_spark.commands.cluster",
    "user": "pravega_spark.commands.user",
    "store": "pravega_spark.commands.store",
    "backfill": "pravega_spark.backfill.command",
    "doctor": "pravega_spark.commands.doctor",
    "files": "pravega_spark.commands.files",
}
"""The module that has each command; its ``add_to`` adds it, to the group where one is named."""
GROUPS: Final = {"stream": "Create, show, scale and truncate streams."}
"""The help of the groups whose commands are in several modules."""


def make_application(arguments: Sequence[str] = ()) -> typer.Typer:
    """Returns the application with the command that the arguments name, and with all commands where they name none."""
    # Behind an option, a word may be its value, and the help of a group shows all its commands.
    words = list(takewhile(lambda argument: not argument.startswith("-"), arguments))
    named = _named(words)
    made = typer.Typer(
        name="pravega-spark",
        help="A tiered event-stream store, and the Spark source and sink that make it useful.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        add_completion=not named,
    )
    made.callback()(_options)
    groups = {name: typer.Typer(help=text, no_args_is_help=True) for name, text in GROUPS.items()}
    added = {(MODULES[name], name.partition(" ")[0]): None for name in named or MODULES}
    for module, group in added:
        import_module(module).add_to(groups.get(group, made))
    for name in dict.fromkeys(group for _, group in added if group in groups):
        made.add_typer(groups[name], name=name)
    return _narrowed(made, words) if named else made


def _named(words: Sequence[str]) -> list[str]:
    """Returns the command that words name, or all of its group; empty where they name none."""
    whole = [" ".join(words[:count]) for count in (2, 1)]
    exact = [name for name in whole if name in MODULES]
    return exact or [name for name in MODULES if words and name.startswith(f"{words[0]} ")]


def _narrowed(group: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Returns a group with the one command that the words name; the group as it is where they name none."""
    name = words[0] if words else ""
    commands = [item for item in group.registered_commands if _name_of(item) == name]
    groups = [copy.copy(item) for item in group.registered_groups if item.name == name]
    if not commands and not groups:
        return group
    for item in groups:
        item.typer_instance = item.typer_instance and _narrowed(item.typer_instance, words[1:])
    made = copy.copy(group)
    made.registered_commands, made.registered_groups = commands, groups
    return made


def _name_of(command: CommandInfo) -> str:
    return command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"pravega-spark {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and end.")
    ] = False,
) -> None:
    """A tiered event-stream store, and the Spark source and sink that make it useful."""
