"""``cluster rebuild-cpo|replace-server``: repairs of a cluster by an operator."""

from __future__ import annotations

from typing import Annotated

import typer

from pravega_spark.commands.services import Configuration, become_maintenance

commands = typer.Typer(help="Repairs of a cluster, with the settings file of one of its stores.", no_args_is_help=True)


def add_to(application: typer.Typer) -> None:
    application.add_typer(commands, name="cluster")


@commands.command("rebuild-cpo")
def rebuild_cpo(
    config: Configuration,
    replace: Annotated[bool, typer.Option("--replace", help="Replace what the control plane still has.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look, and change nothing.")] = False,
) -> None:
    """Register again what the control plane's Redis lost, from what the plog servers and Tier 2 have. All segment
    stores must be stopped."""
    become_maintenance("rebuild-cpo", config, *(["--replace"] if replace else []), *(["--dry-run"] if dry_run else []))


@commands.command("replace-server")
def replace_server(
    config: Configuration,
    group: Annotated[str, typer.Option("--group", help="The persistence group.")],
    old: Annotated[str, typer.Option("--old", help="Address of the server that is gone, or retires.")],
    new: Annotated[str, typer.Option("--new", help="Address of an empty server.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look, and change nothing.")] = False,
) -> None:
    """Replace one server of a persistence group of three for good, while the stores run, and wait until all logs have
    it. The command may be interrupted and repeated."""
    arguments = ["--group", group, "--old", old, "--new", new, *(["--dry-run"] if dry_run else [])]
    become_maintenance("replace-server", config, *arguments)
