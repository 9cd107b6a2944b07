"""Builds the application with all sub-commands."""

from __future__ import annotations

import typer

from pravega_spark.backfill import command as backfill
from pravega_spark.commands import cluster, doctor, event, services, sink, store, stream

application = typer.Typer(
    name="pravega-spark",
    help="A tiered event-stream store, and the Spark source and sink that make it useful.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
services.add_to(application)
stream.add_to(application)
event.add_to(application)
sink.add_to(application)
cluster.add_to(application)
store.add_to(application)
backfill.add_to(application)
doctor.add_to(application)
