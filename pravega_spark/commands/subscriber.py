"""``subscriber list|remove``: show who holds a stream's events back from retention, and give one up."""

from __future__ import annotations

from typing import Annotated

import typer

from pravega_common.errors import NotFound
from pravega_common.names import split_scoped_name
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, ControllerOption, JsonOption, YesOption
from pravega_spark.commands.connection import connected, existing_stream
from pravega_spark.commands.output import confirm, counted, print_json, print_table
from pravega_streams.controller.reader_groups import ReaderGroupClient


def add_to(application: typer.Typer) -> None:
    group = typer.Typer(
        help="Queries and reader groups that retention waits for (option subscriber of a source).",
        no_args_is_help=True,
    )
    group.command("list")(list_subscribers)
    group.command()(remove)
    application.add_typer(group, name="subscriber")


def list_subscribers(
    stream: Annotated[str, typer.Argument(metavar="SCOPE/STREAM", show_default=False)],
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List the subscribers of a stream."""
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        found = sorted(ReaderGroupClient(client.controller.transport).subscribers(scope, name))
    if as_json:
        print_json(found)
    else:
        print_table(f"{counted(len(found), 'subscriber')} of {scope}/{name}", ["subscriber"], [(one,) for one in found])


def remove(
    subscriber: Annotated[str, typer.Argument(metavar="SCOPE/NAME", help="As in subscriber list.")],
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Give a subscriber up that is gone: retention waits for it no more, in none of its streams."""
    scope, name = split_scoped_name(subscriber)
    with connected(controller) as client:
        groups = ReaderGroupClient(client.controller.transport)
        known = groups.find(scope, name)
        if known is None:
            raise NotFound(f"there is no subscriber '{subscriber}'; see pravega-spark subscriber list SCOPE/STREAM")
        if not yes:
            confirm(
                f"{subscriber}: forget it, with its positions? A reader group goes by: pravega-spark group delete.",
                unasked=f"removing '{subscriber}'",
            )
        removed = groups.delete(known)
    if as_json:
        print_json({"subscriber": subscriber, "removed": removed})
    else:
        print(f"{subscriber}: removed" if removed else f"{subscriber}: was removed meanwhile")
