"""Tests what the log of a service prints: levels, one line a record, tracebacks, text and JSON."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import sys

import pytest
import structlog

from pravega_common.errors import Unavailable
from pravega_common.services.base import Service
from pravega_common.services.log_choices import LogFormat, LogLevel
from pravega_common.services.logs import LogSection, set_up_log


class Disk(io.StringIO):
    """A file of a disk that may be full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


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


async def test_a_part_that_fails_is_stopped_also_where_the_log_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    monkeypatch.setattr(sys, "stdout", disk)
    set_up_log(LogSection(format=LogFormat.JSON))
    service = Service("part")
    await service.start()
    disk.is_full = True
    service.fail(Unavailable("Redis is away"))
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable):
            await service.wait_stopped()
    disk.is_full = False
    structlog.get_logger(service="s").info("room again")
    records = [json.loads(line) for line in disk.getvalue().splitlines()]
    assert [record["event"] for record in records] == [
        "room again",
        "records may be missing: they could not be written",
    ]
    assert records[1]["count"] == 1


def test_a_closed_output_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    disk.close()
    monkeypatch.setattr(sys, "stdout", disk)
    set_up_log(LogSection())
    structlog.get_logger(service="s").warning("said to nobody")
