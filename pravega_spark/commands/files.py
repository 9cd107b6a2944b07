"""``files``: says where the files are that come with the package."""

from __future__ import annotations

from typing import Annotated

import typer

from pravega_spark.commands.arguments import JsonOption
from pravega_spark.commands.output import print_json
from pravega_spark.shipped_files import shipped_file, shipped_folder, shipped_names


def add_to(application: typer.Typer) -> None:
    application.command()(files)


def files(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="As in the list, a folder of it, or jar.", show_default=False)
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Print where the settings, examples and programs are that come with the package: all, or the path of one."""
    if name:
        paths = {name: str(shipped_file(name))}
    else:
        paths = {item: str(shipped_folder() / item) for item in shipped_names()}
    if as_json:
        print_json(paths)
    else:
        print("\n".join(paths.values()))
