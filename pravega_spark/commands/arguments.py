"""Declares the arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated, Final

import typer

CONTROLLER_DEFAULT: Final = "tcp://localhost:9090"
rate_time_s: Final = 2.0
"""How long the growth of a stream is watched for ``--rates``."""

ControllerOption = Annotated[
    str, typer.Option("--controller", envvar="PRAVEGA_CONTROLLER", help="The controller, tcp://host:port[,host:port…].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
START_HELP: Final = "Where to begin; a TIME is 2026-01-31T12:00Z, or 12h for twelve hours ago."
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
OptionalScopeArgument = Annotated[
    str, typer.Argument(metavar="[SCOPE]", help="Only of this scope.", show_default=False)
]
StreamArgument = Annotated[str, typer.Argument(metavar="SCOPE/STREAM", help="The stream.", show_default=False)]
