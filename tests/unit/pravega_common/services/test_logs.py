"""Tests what the log of a service prints: levels, one line a record, tracebacks, text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from pravega_common.errors import Unavailable
from pravega_common.services.base import Service
from pravega_common.services.logs import LogFormat, LogLevel, LogSection, set_up_log


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels(level: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSection(level=LogLevel(level)))
    log = structlog.get_logger(service="s")
    for say in (log.debug, log.info, log.warning, log.error):
        say("said")
    assert len(printed(capsys)) == count


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSection(format=LogFormat.JSON))
    structlog.get_logger(service="s").info("two\nlines", path=LogLevel.INFO, number=7)
    (line,) = printed(capsys)
    record = json.loads(line)
    assert record.pop("timestamp").endswith("Z")
    assert record == {"event": "two\nlines", "level": "info", "service": "s", "path": "info", "number": 7}


@pytest.mark.parametrize("form", list(LogFormat))
async def test_an_error_that_nobody_foresaw_has_its_place(form: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogSection(format=form))
    for error, is_traced in ((Unavailable("Redis is away"), False), (KeyError("unforeseen"), True)):
        service = Service("part")
        await service.start()

        async def fails(error: Exception = error) -> None:
            raise error

        service.spawn(fails(), "fails")
        with pytest.raises(type(error)):
            await service.wait_stopped()
        (line,) = printed(capsys)
        assert ("Traceback" in line and "in fails" in line) is is_traced
