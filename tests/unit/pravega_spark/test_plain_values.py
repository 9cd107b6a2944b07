"""Tests that values of the command line are the same with and without Typer's own conversion."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from pravega_spark.plain_values import NOT_PLAIN, kind_of, take_plain_values


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


def twice(value: str) -> str:
    return value * 2


def made() -> Any:
    application = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})

    @application.callback()
    def options(loud: bool = False) -> None:
        pass

    @application.command()
    def show(
        name: str,
        rest: Annotated[list[str] | None, typer.Argument()] = None,
        count: Annotated[int, typer.Option(min=1, max=9)] = 1,
        share: Annotated[float, typer.Option(min=0)] = 0.5,
        quiet: Annotated[bool, typer.Option(envvar="SHOWN_QUIET")] = False,
        tag: Annotated[list[str] | None, typer.Option()] = None,
        colour: Colour = Colour.RED,
        file: Path | None = None,
        parsed: Annotated[str, typer.Option(parser=twice)] = "a",
        called: Annotated[str, typer.Option(callback=twice)] = "b",
        maybe: int | None = None,
        hours: float = 0,
        clamped: Annotated[int, typer.Option(max=3, clamp=True)] = 0,
    ) -> None:
        print(name, rest, count, share, quiet, tag, repr(colour), repr(file), parsed, called, maybe, hours, clamped)

    return get_command(application)


@pytest.mark.parametrize(
    "words",
    [
        ["x"],
        [""],
        [],
        ["x", "y", "z"],
        ["x", "--count", "9"],
        ["x", "--count", "007"],
        ["x", "--count", " 7"],
        ["x", "--maybe", "12345678901234567890123"],
        ["x", "--share", "1"],
        ["x", "--share", "1.25"],
        ["x", "--quiet"],
        ["x", "--tag", "a", "--tag", "b"],
        ["x", "--colour", "blue"],
        ["x", "--file", "/tmp"],
        ["x", "--parsed", "c", "--called", "d"],
        ["x", "--clamped", "5"],
        ["x", "-h"],
        ["x", "--unknown"],
    ],
)
@pytest.mark.parametrize("quiet", ["", "1", "no", "what"])
def test_values_and_messages_are_those_of_typer(
    words: list[str], quiet: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOWN_QUIET", quiet)
    short, long = made(), made()
    take_plain_values(short)
    ends = []
    for command in (short, long):
        with pytest.raises(SystemExit) as ended:
            command(["show", *words], prog_name="shown")
        ends.append((ended.value.code, capfd.readouterr()))
    assert ends[0] == ends[1]
    assert "".join(ends[0][1])


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--count", "0", "'0' is no whole number in 1..9."),
        ("--count", "10", "'10' is no whole number in 1..9."),
        ("--count", "-1", "'-1' is no whole number in 1..9."),
        ("--count", "1_0", "'1_0' is no whole number in 1..9."),
        ("--count", "٣", "'٣' is no whole number in 1..9."),
        ("--count", "seven", "'seven' is no whole number in 1..9."),
        ("--maybe", "x", "'x' is no whole number."),
        ("--share", "-0.1", "'-0.1' is no number of at least 0."),
        ("--share", "nan", "'nan' is no number of at least 0."),
        ("--hours", "two", "'two' is no number."),
        ("--colour", "green", "'green' is not one of 'red', 'blue'."),
    ],
)
def test_a_wrong_number_or_choice_is_named_with_what_is_allowed(
    option: str, value: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command = made()
    take_plain_values(command)
    with pytest.raises(SystemExit) as ended:
        command(["show", "x", option, value], prog_name="shown")
    said = " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert (ended.value.code, f"Invalid value for '{option}': {message}" in said) == (2, True), said


def test_what_is_not_plain_is_left_to_typer() -> None:
    kind = kind_of(Annotated[int | None, typer.Option(min=1)])
    assert kind is not None
    assert (kind.plain("3"), kind.plain(3)) == (3, 3)
    for value in ("0", 0, True, "3.0", 3.0, None, [3]):
        assert kind.plain(value) is NOT_PLAIN
