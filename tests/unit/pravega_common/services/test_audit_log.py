"""Tests the file of the audit log: its records, its size, and a place where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pravega_common.errors import ConfigurationError
from pravega_common.services import audit_log
from pravega_common.services.audit_log import AuditLog
from tests.support.fakes.clock import ManualClock

events = 40
RECORD: dict[str, Any] = {
    "who": "alice",
    "peer": "ipv4:10.0.0.7:4711",
    "call": "deleteStream",
    "subject": "s/t",
    "outcome": "SUCCESS",
}


def records(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_record_goes_to_the_log_and_to_the_file(tmp_path: Path) -> None:
    file, clock = tmp_path / "audit.jsonl", ManualClock()
    audit = AuditLog(clock, str(file))
    with capture_logs() as logged:
        audit.note(**RECORD)
        audit.note(**{**RECORD, "subject": "100 %s\n" + "x" * 10_000})
    audit.close()
    shown = {"who": "alice", "peer": RECORD["peer"], "call": "deleteStream", "on": "s/t", "outcome": "SUCCESS"}
    first, second = records(file)
    assert first == {"wall_ms": clock.wall_ms(), **shown}
    assert len(str(second["on"])) == audit_log.text_chars_max
    assert logged[0] == {"event": "administrative call", "log_level": "info", "service": "audit", **shown}


def test_the_file_is_rotated_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "file_bytes_max", 1_000)
    monkeypatch.setattr(audit_log, "files_kept", 3)
    file = tmp_path / "audit.jsonl"
    audit = AuditLog(ManualClock(), str(file))
    for number in range(events):
        audit.note(**{**RECORD, "subject": f"s/{number}"})
    audit.close()
    files = [file, *(file.with_name(f"{file.name}.{number}") for number in (1, 2, 3))]
    assert all(one.stat().st_size <= 1_000 for one in files)
    kept = [str(record["on"]) for one in reversed(files) for record in records(one)]
    assert kept == [f"s/{number}" for number in range(events)][-len(kept) :] and len(kept) >= 20
    assert sorted(tmp_path.iterdir()) == sorted([*files, file.with_name("audit.jsonl.refused")])


def test_refused_calls_push_out_no_record_of_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "file_bytes_max", 1_000)
    monkeypatch.setattr(audit_log, "files_kept", 1)
    file = tmp_path / "audit.jsonl"
    audit = AuditLog(ManualClock(), str(file))
    audit.note(**RECORD)
    for number in range(events):
        refused = {**RECORD, "who": "-", "subject": f"s/{number}", "outcome": "UNAUTHENTICATED"}
        audit.note(**refused, was_refused=True)
    audit.close()
    assert [record["who"] for record in records(file)] == ["alice"]
    others = [one for one in tmp_path.iterdir() if one != file]
    assert len(others) == 1 + audit_log.refused_files_kept and all(one.stat().st_size <= 1_000 for one in others)
    assert str(records(file.with_name("audit.jsonl.refused"))[-1]["on"]) == f"s/{events - 1}"


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"log\.audit_file = .*: cannot be written: No such file"):
        AuditLog(ManualClock(), str(tmp_path / "missing" / "audit.jsonl"))
