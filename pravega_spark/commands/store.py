"""``store backup|doctor|restore``: the data of a cluster in Tier 2 and Tier 1."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pravega_spark.commands.services import Configuration, become_maintenance

commands = typer.Typer(help="The data of a cluster, with the settings file of one of its stores.", no_args_is_help=True)


def add_to(application: typer.Typer) -> None:
    application.add_typer(commands, name="store")


@commands.command()
def backup(
    to: Annotated[Path, typer.Argument(help="An empty folder, or one that is not there yet.")],
    config: Configuration,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Copy a cluster into a folder while its stores run: what was acknowledged before is in it. store restore --from
    puts it into empty places. A folder without an inventory is an interrupted backup, and is refused."""
    become_maintenance("backup", config, str(to.absolute()), *(["--json"] if json else []))


@commands.command()
def doctor(
    config: Configuration,
    container: Annotated[list[int] | None, typer.Option(help="Only this one; may be repeated.")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every chunk and check its checksums.")] = False,
    tier2_only: Annotated[bool, typer.Option("--tier2-only", help="Leave Tier 1 alone.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Examine marks, metadata tables, manifests, chunks and logs, and change nothing. Stores may run. Exit status 1 if
    something is wrong; each finding names its remedy."""
    given = [f"--container={one}" for one in container or ()]
    given += [name for name, is_given in (("--deep", deep), ("--tier2-only", tier2_only), ("--json", json)) if is_given]
    become_maintenance("doctor", config, *given)


@commands.command()
def restore(
    config: Configuration,
    container: Annotated[list[int] | None, typer.Option(help="Only this one; may be repeated.")] = None,
    backup: Annotated[
        Path | None, typer.Option("--from", help="Restore this backup, into an empty Tier 1, Tier 2 and CPO.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else only the plan is printed.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Start containers from Tier 2 alone, when Tier 1 is gone for good: with a new log and a new identity, and a report
    of what is lost. All segment stores must be stopped. A container whose log is there is left alone. With --from:
    put a backup into empty places; nothing that it has is lost."""
    given = [f"--container={one}" for one in container or ()]
    given += [f"--from={backup.absolute()}"] if backup is not None else []
    given += [name for name, is_given in (("--yes", yes), ("--json", json)) if is_given]
    become_maintenance("restore", config, *given)
