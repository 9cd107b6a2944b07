"""``doctor``: checks versions, services, what is open, and executors, and names a remedy for each failure."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Annotated

import typer

from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, ControllerOption, JsonOption
from pravega_spark.commands.diagnosis import services
from pravega_spark.commands.findings import Finding, is_well
from pravega_spark.commands.machine_diagnosis import installed
from pravega_spark.commands.output import console, print_json


def add_to(application: typer.Typer) -> None:
    application.command()(doctor)


def doctor(
    spark: Annotated[bool, typer.Option("--spark", help="Also run a task on every executor.")] = False,
    master: Annotated[str, typer.Option(help="With --spark: Spark's master.")] = "local[2]",
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Check versions, services and, with --spark, executors. Exit status 1 if something is not well."""
    # A run that is ended this way removes what it made, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    findings: list[Finding] = []
    for finding in _all(spark, master, controller):
        findings.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        rows = [
            {"check": item.name, "ok": item.is_ok, "detail": item.detail, "remedy": _remedy(item)} for item in findings
        ]
        print_json({"ok": is_well(findings), "checks": rows})
    raise typer.Exit(0 if is_well(findings) else 1)


def _all(spark: bool, master: str, controller: str) -> Iterator[Finding]:
    yield from installed()
    found = services(controller)
    yield from found
    if not spark:
        return
    if not is_well(found):
        yield Finding("spark", None, "not looked at while the services are not well")
        return
    trip = next(item for item in found if item.name == "round trip")
    if not trip.is_ok:
        yield Finding("spark", None, "not looked at: its tasks read a stream that is made for them", trip.remedy)
        return
    from pravega_spark.commands.spark_diagnosis import executors

    yield from executors(controller, master)


def _remedy(finding: Finding) -> str:
    return "" if finding.is_ok else finding.remedy


def _print(finding: Finding) -> None:
    mark = {True: "[green]ok    [/]", False: "[bold red]failed[/]", None: "[yellow]-     [/]"}[finding.is_ok]
    shown = console()
    shown.print(mark, end=" ", markup=True, soft_wrap=True)
    shown.print(f"{finding.name:<32} {finding.detail}", soft_wrap=True)
    if _remedy(finding):
        shown.print(f"{'':<7}{'':<33}→ {finding.remedy}", soft_wrap=True)
