"""``table list|delete``: show the key-value tables of scopes, and remove one."""

from __future__ import annotations

from typing import Annotated

import typer

from pravega_common.errors import NotFound
from pravega_common.names import split_scoped_name
from pravega_spark.commands.arguments import (
    CONTROLLER_DEFAULT,
    ControllerOption,
    JsonOption,
    OptionalScopeArgument,
    YesOption,
)
from pravega_spark.commands.connection import connected
from pravega_spark.commands.output import confirm, print_deleted, print_members
from pravega_spark.commands.scope_contents import names_by_scope, table_names


def add_to(application: typer.Typer) -> None:
    group = typer.Typer(help="Key-value tables, which programs make.", no_args_is_help=True)
    group.command("list")(list_tables)
    group.command()(delete)
    application.add_typer(group, name="table")


def list_tables(
    scope: OptionalScopeArgument = "", controller: ControllerOption = CONTROLLER_DEFAULT, as_json: JsonOption = False
) -> None:
    """List the key-value tables of a scope, or of all."""
    with connected(controller) as client:
        found = names_by_scope(client, scope, table_names)
    print_members("table", found, as_json, thing="key-value table")


def delete(
    table: Annotated[str, typer.Argument(metavar="SCOPE/TABLE", help="As in table list.", show_default=False)],
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Delete a key-value table with all its data."""
    scope, name = split_scoped_name(table)
    with connected(controller) as client:
        try:
            client.key_value_tables.settings(scope, name)
        except NotFound as error:
            raise NotFound(f"key-value table '{table}' does not exist; see pravega-spark table list") from error
        if not yes:
            confirm(f"Delete {table} with all its data?", unasked=f"deleting '{table}'")
        deleted = client.key_value_tables.delete(scope, name)
    print_deleted("table", table, deleted, as_json)
