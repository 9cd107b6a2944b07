"""Declares the arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from pravega_common.names import split_scoped_name, validate_scope_name, validate_stream_name

CONTROLLER_DEFAULT: Final = "tcp://localhost:9090"

ControllerOption = Annotated[
    str, typer.Option("--controller", envvar="PRAVEGA_CONTROLLER", help="The controller, tcp://host:port[,host:port…].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
StreamArgument = Annotated[str, typer.Argument(metavar="SCOPE/STREAM", help="The stream.", show_default=False)]


def parse_stream(text: str) -> tuple[str, str]:
    """Returns scope and stream of ``scope/stream``; ``InvalidArgument`` names what is wrong."""
    scope, stream = split_scoped_name(text)
    return validate_scope_name(scope), validate_stream_name(stream)
