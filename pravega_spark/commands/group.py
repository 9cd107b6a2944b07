"""``group list|delete``: show the reader groups of scopes, and remove one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from pravega_common.errors import NotFound
from pravega_common.names import READER_GROUP_PREFIX, split_scoped_name
from pravega_spark.commands.arguments import (
    CONTROLLER_DEFAULT,
    ControllerOption,
    JsonOption,
    OptionalScopeArgument,
    YesOption,
)
from pravega_spark.commands.connection import cluster_address, connected
from pravega_spark.commands.output import confirm, print_deleted, print_members
from pravega_spark.commands.scope_contents import group_names, names_by_scope

if TYPE_CHECKING:
    from pravega_streams.stream_manager import StreamManager


def add_to(application: typer.Typer) -> None:
    group = typer.Typer(help="Reader groups, also those by which queries subscribe.", no_args_is_help=True)
    group.command("list")(list_groups)
    group.command()(delete)
    application.add_typer(group, name="group")


def list_groups(
    scope: OptionalScopeArgument = "", controller: ControllerOption = CONTROLLER_DEFAULT, as_json: JsonOption = False
) -> None:
    """List the reader groups that controllers know: all of Java, ours with a retention, subscribed queries."""
    with connected(controller) as client:
        found = names_by_scope(client, scope, group_names)
    print_members("group", found, as_json, thing="reader group")


def delete(
    group: Annotated[str, typer.Argument(metavar="SCOPE/GROUP", help="As in group list.", show_default=False)],
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Delete a reader group with its positions; retention waits for it no more."""
    scope, name = split_scoped_name(group)
    with connected(controller) as client:
        is_known = client.controller.stream_exists(scope, READER_GROUP_PREFIX + name)
    # Has an event loop for the state of groups, which takes longer to import than most commands take.
    from pravega_streams.stream_manager import StreamManager

    with StreamManager(cluster_address(controller)) as manager:
        if not is_known:
            _check_has_state(manager, scope, name)
        if not yes:
            confirm(f"Delete {group} with its positions?", unasked=f"deleting '{group}'")
        deleted = manager.delete_reader_group(scope, name)
    print_deleted("group", group, deleted, as_json)


def _check_has_state(manager: StreamManager, scope: str, group: str) -> None:
    """``NotFound`` unless a store has the state of a group that no controller knows: one without a retention."""
    try:
        manager.open_reader_group(scope, group)
    except NotFound as error:
        raise NotFound(f"reader group '{scope}/{group}' does not exist; see pravega-spark group list") from error
