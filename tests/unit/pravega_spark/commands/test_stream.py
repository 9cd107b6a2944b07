"""Tests which options of ``stream create`` go together; nothing is asked of a controller before they do."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from pravega_common.errors import InvalidArgument
from pravega_spark.application import make_application
from pravega_spark.commands import stream
from pravega_streams.controller.address import Controller


class ConnectedError(Exception):
    """A command goes to its controller."""


def connect(controller: Controller) -> None:
    raise ConnectedError(controller)


def create(monkeypatch: pytest.MonkeyPatch, *options: str) -> BaseException | None:
    return run(monkeypatch, "create", *options)


def run(monkeypatch: pytest.MonkeyPatch, command: str, *options: str) -> BaseException | None:
    monkeypatch.setattr(stream, "connected", connect)
    words = ["stream", command, "s/t", *options]
    return CliRunner().invoke(make_application(words), words).exception


def test_a_factor_without_a_rate_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = create(monkeypatch, "--factor", "3", "--segments", "2")
    assert isinstance(refused, InvalidArgument)
    assert "--factor 3 needs --events-per-second or --kilobytes-per-second" in str(refused)


@pytest.mark.parametrize(
    "options",
    [(), ("--events-per-second", "10"), ("--kilobytes-per-second", "10", "--factor", "3")],
)
def test_options_that_go_together(monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    assert isinstance(create(monkeypatch, *options), ConnectedError)


def test_a_scale_to_no_segments_is_not_taken_for_one_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule for the number names its limits; it is asked once the stream is known."""
    assert isinstance(run(monkeypatch, "scale", "--segments", "0"), ConnectedError)
    for options in ((), ("--segments", "0", "--split", "1")):
        assert "give exactly one of" in str(run(monkeypatch, "scale", *options))
