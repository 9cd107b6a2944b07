"""Tests the commands as processes against real services: their output and how they fail."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.transaction_sets import CommitStatus, SetMember, Sink
from pravega_common.names import segment_number
from pravega_common.stream_cut import StreamCut
from pravega_spark.ledger.job_claims import JobClaim, JobClaims, claims_segment
from pravega_spark.source.offsets import SourceOffset
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.byte_stream.byte_stream import ByteStream
from pravega_streams.client import StreamClient
from pravega_streams.controller.reader_groups import ReaderGroupClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from pravega_streams.stream_manager import StreamManager
from pravega_streams.table.blocking_table import BlockingTable
from tests.support.cluster import cluster
from tests.support.secured_suite import security_of_suite

__all__ = ["cluster"]

command_time_max_s = 120
tick_s = 0.02


class Shell:
    """Runs ``pravega-spark`` with the controller in the environment; ``scope`` belongs to the test."""

    def __init__(self, controller: str) -> None:
        self.controller = controller
        self.scope = f"scope-{uuid.uuid4().hex[:8]}"
        self.environment = {**os.environ, "PRAVEGA_CONTROLLER": controller}

    @property
    def stream(self) -> str:
        return f"{self.scope}/t"

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pravega_spark", *arguments]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, **more
        )

    def run(self, *arguments: str, given: bytes = b"", status: int = 0) -> bytes:
        """Standard output; on another status than the expected one, the test fails with what was said."""
        process = self.start(*arguments)
        output, said = process.communicate(given, timeout=command_time_max_s)
        assert process.returncode == status, f"{arguments}: {process.returncode}\n{said.decode()}\n{output.decode()}"
        return output

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def text(self, *arguments: str) -> str:
        return self.run(*arguments).decode().strip()

    def complaint(self, *arguments: str, given: bytes = b"") -> str:
        """The one sentence of a command that fails."""
        process = self.start(*arguments)
        _, said = process.communicate(given, timeout=command_time_max_s)
        assert process.returncode == 1, said.decode()
        (line,) = said.decode().splitlines()
        return line

    def lines(self, stream: str = "", *arguments: str) -> list[str]:
        return self.run("event", "read", stream or self.stream, *arguments).decode().splitlines()


@pytest.fixture
def shell(cluster: StandaloneProcess) -> Shell:
    return Shell(cluster.controller_uri)


def test_the_quota_of_a_scope(shell: Shell) -> None:
    no_limits = dict.fromkeys(("streams", "segments", "bytes_in", "bytes_out"))
    assert "does not exist" in shell.complaint("scope", "quota", shell.scope, "--streams", "1")
    shell.run("stream", "create", shell.stream, "--segments", "2")
    assert "--none; scope info" in shell.complaint("scope", "quota", shell.scope)
    assert shell.json("scope", "info", shell.scope) == {
        "scope": shell.scope,
        "limits": no_limits,
        "used": None,
    }
    limits, used = {**no_limits, "streams": 1, "segments": 3, "bytes_out": 100_000}, {"streams": 1, "segments": 2}
    shell.run("scope", "quota", shell.scope, "--bytes-out", "100000")
    shell.run("scope", "quota", shell.scope, "--streams", "1")
    described = shell.json("scope", "quota", shell.scope, "--segments", "3")
    assert described == {"scope": shell.scope, "limits": limits, "used": used}
    assert described in shell.json("scope", "list")
    assert "2 of 3" in shell.text("scope", "info", shell.scope)
    refusal = shell.complaint("stream", "create", f"{shell.scope}/more")
    assert f"scope {shell.scope} would have 2 streams (it has 1), its quota is 1" in refusal
    assert "would have 4 segments" in shell.complaint("stream", "scale", shell.stream, "--segments", "4")
    assert "bytes/s out" in shell.text("scope", "info", shell.scope)
    assert "100,000" in shell.text("scope", "list")
    assert shell.json("scope", "quota", shell.scope, "--none")["limits"] == no_limits
    shell.run("stream", "create", f"{shell.scope}/more")


def test_the_life_of_a_stream(shell: Shell) -> None:
    stream = shell.stream
    assert shell.json("stream", "create", stream, "--segments", "2", "--tag", "a") == {
        "stream": stream,
        "created": True,
    }
    assert "exists already" in shell.complaint("stream", "create", stream)
    assert shell.json("stream", "create", stream, "--if-missing") == {"stream": stream, "created": False}
    assert shell.json("stream", "list", shell.scope) == [{"scope": shell.scope, "stream": "t"}]
    facts = shell.json("stream", "info", stream)
    assert (facts["tags"], facts["bytes"], len(facts["segments"]), facts["sealed"]) == (["a"], 0, 2, False)
    assert facts["head"] == facts["tail"]
    assert facts["commits"] == {"waiting": 0, "merging": 0, "obstacles": []}
    assert shell.json("stream", "transaction", "list", stream)["transactions"] == []
    assert stream in shell.text("stream", "info", stream)
    assert "is open; seal it first" in shell.complaint("stream", "delete", stream, "--yes")
    assert "needs --yes where nobody can be asked" in shell.complaint("stream", "delete", stream)
    assert "for good needs --yes where nobody can be asked" in shell.complaint("stream", "seal", stream)
    assert not shell.json("stream", "info", stream)["sealed"]
    shell.run("stream", "seal", stream, "--yes")
    assert shell.json("stream", "info", stream)["sealed"]
    assert "is sealed: its policy stays" in shell.complaint("stream", "retain", stream, "--hours", "1")
    assert shell.json("stream", "retain", stream, "--hours", "1", "--once")["bytes"] == 0
    assert f"scope '{shell.scope}-2' does not exist" in shell.complaint("stream", "list", f"{shell.scope}-2")
    shell.run("stream", "delete", stream, "--yes")
    assert "does not exist; see pravega-spark stream list" in shell.complaint("stream", "info", stream)
    assert shell.json("stream", "list", shell.scope) == []


def test_scaling(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream, "--segments", "2")
    split = shell.json("stream", "scale", shell.stream, "--split", "0:2")
    assert (split["sealed"], [item["key_high"] for item in split["created"]]) == ([0], [0.25, 0.5])
    numbers = ",".join(str(segment_number(item["segment"])) for item in split["created"])
    merged = shell.json("stream", "scale", shell.stream, "--merge", numbers)
    assert [(item["key_low"], item["key_high"]) for item in merged["created"]] == [(0.0, 0.5)]
    complaint = shell.complaint("stream", "scale", shell.stream, "--merge", "1,4")
    assert "1 segments would be left" in complaint
    assert "use --segments 1, which changes the policy too" in complaint
    fewer = shell.json("stream", "scale", shell.stream, "--segments", "1")
    assert [(item["key_low"], item["key_high"]) for item in fewer["created"]] == [(0.0, 1.0)]
    shell.run("stream", "scale", shell.stream, "--segments", "3")
    shell.run("stream", "retain", shell.stream, "--hours", "1")
    facts = shell.json("stream", "info", shell.stream)
    assert (len(facts["segments"]), facts["segments_head_to_tail"]) == (3, 9)
    assert "no open segment 0" in shell.complaint("stream", "scale", shell.stream, "--split", "0")
    assert "exactly one of --split" in shell.complaint("stream", "scale", shell.stream)


def test_policies_are_kept(shell: Shell) -> None:
    rates = ["--events-per-second", "100", "--factor", "3", "--retain-hours", "2"]
    shell.run("stream", "create", shell.stream, *rates)
    facts = shell.json("stream", "info", shell.stream)
    assert facts["scaling"] == {"type": "events_per_second", "segments_min": 1, "target_rate": 100, "factor": 3}
    assert (facts["retention"]["type"], facts["retention"]["keep_min"]) == ("time", 7_200_000)
    shell.run("stream", "retain", shell.stream, "--bytes", "10GiB")
    assert shell.json("stream", "info", shell.stream)["retention"]["keep_min"] == 10 << 30
    assert shell.json("stream", "info", shell.stream)["scaling"] == facts["scaling"]
    shell.run("stream", "retain", shell.stream, "--all")
    assert shell.json("stream", "info", shell.stream)["retention"]["type"] == "none"
    assert "exclude each other" in shell.complaint(
        "stream", "create", "s/x", "--events-per-second", "1", "--kilobytes-per-second", "1"
    )
    assert "--bytes 'much' is no size" in shell.complaint("stream", "retain", shell.stream, "--bytes", "much")
    assert "--bytes 0 must be at least 1" in shell.complaint("stream", "retain", shell.stream, "--bytes", "0")
    assert "--hours inf must be" in shell.complaint("stream", "retain", shell.stream, "--hours", "inf")
    assert "--retain-bytes 0 must be" in shell.complaint("stream", "create", "s/x", "--retain-bytes", "0")
    assert "--retain-hours 1e+300 must be" in shell.complaint("stream", "create", "s/x", "--retain-hours", "1e300")
    shell.run("stream", "create", "s/x", "--segments", "2147483648", status=2)
    assert "a stream of 10001 segments" in shell.complaint("stream", "create", "s/x", "--segments", "10001")


def test_cuts_and_truncation(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream)
    shell.run("event", "write", shell.stream, given=b"one\ntwo\n")
    middle = shell.text("stream", "cut", shell.stream)
    shell.run("event", "write", shell.stream, given=b"three\nfour\n")
    assert shell.json("stream", "cut", "--decode", middle)["segments"] == [
        {"segment": 0, "name": f"{shell.stream}/0.#epoch.0", "number": 0, "epoch": 0, "offset": 22}
    ]
    assert shell.lines(shell.stream, "--from", middle) == ["three", "four"]
    assert shell.lines(shell.stream, "--to", middle) == ["one", "two"]
    planned = shell.json("stream", "truncate", shell.stream, "--at", middle, "--dry-run")
    assert (planned["bytes"], planned["truncated"]) == (22, False)
    assert "needs --yes where nobody" in shell.complaint("stream", "truncate", shell.stream, "--at", middle)
    assert shell.json("stream", "truncate", shell.stream, "--at", middle, "--yes")["bytes"] == 22
    assert shell.lines() == ["three", "four"]
    assert shell.text("stream", "cut", shell.stream, "head") == middle
    assert shell.json("stream", "truncate", shell.stream, "--at", middle, "--yes")["bytes"] == 0
    assert shell.json("stream", "retain", shell.stream, "--bytes", "12", "--once", "--yes")["bytes"] == 13
    assert shell.lines() == ["four"]
    assert shell.json("stream", "truncate", shell.stream, "--at", "tail", "--yes")["bytes"] == 12
    assert shell.lines() == []
    for how in ("--yes", "--dry-run"):
        complaint = shell.complaint("stream", "truncate", shell.stream, "--at", middle, how)
        assert f"lies before the head of {shell.stream}: that was cut off already" in complaint
    assert "begin at the head (--from earliest)" in shell.complaint("event", "read", shell.stream, "--from", middle)
    other = StreamCut("other", "stream", {0: 1}).as_text()
    assert "is one of other/stream, not of" in shell.complaint("stream", "truncate", shell.stream, "--at", other)
    unknown = StreamCut(shell.scope, "t", {77: 1}).as_text()
    assert "is not valid" in shell.complaint("stream", "truncate", shell.stream, "--at", unknown)
    assert "is not a Base64" in shell.complaint("stream", "cut", "--decode", "nonsense!")


def test_truncation_before_a_time(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream)
    shell.run("event", "write", shell.stream, given=b"old\n" * 10)
    shell.run("stream", "scale", shell.stream, "--segments", "1")
    between = datetime.now(UTC).isoformat(timespec="milliseconds")
    shell.run("event", "write", shell.stream, given=b"new\n")
    assert shell.json("stream", "truncate", shell.stream, "--before", between, "--yes")["bytes"] == 110
    assert shell.lines() == ["new"]
    assert shell.json("stream", "retain", shell.stream, "--hours", "1", "--once")["bytes"] == 0
    assert "is no time" in shell.complaint("stream", "truncate", shell.stream, "--before", "long ago")
    assert "is before 1970" in shell.complaint("stream", "truncate", shell.stream, "--before", "999999999d")


def test_truncation_at_a_time_within_a_segment(shell: Shell) -> None:
    """Stores that keep index segments know times between those of the segments' last changes."""
    shell.run("stream", "create", shell.stream)
    shell.run("event", "write", shell.stream, given=b"old\n" * 10)
    between = datetime.now(UTC).isoformat(timespec="milliseconds")
    shell.run("event", "write", shell.stream, given=b"new\n")
    assert shell.json("stream", "truncate", shell.stream, "--before", between, "--dry-run")["bytes"] == 110
    assert shell.json("stream", "truncate", shell.stream, "--before", "1h", "--dry-run")["bytes"] == 0
    assert shell.json("stream", "truncate", shell.stream, "--before", "0s", "--dry-run")["bytes"] == 121


def test_how_far_subscribers_are_behind(shell: Shell) -> None:
    for stream in ("t", "u"):
        shell.run("stream", "create", f"{shell.scope}/{stream}")
    shell.run("event", "write", shell.stream, given=b"one\ntwo\n")
    with StreamClient(shell.controller) as client:
        groups = ReaderGroupClient(client.controller.transport)
        told = groups.subscribe(shell.scope, "told", [(shell.scope, "t")])
        groups.subscribe(shell.scope, "silent", [(shell.scope, "t")])
        groups.update_cut(told, shell.scope, "t", {0: 11})
    listed = shell.json("stream", "list", shell.scope, "--lag")
    assert [(one["stream"], one["subscribers_left_out"]) for one in listed] == [("t", 0), ("u", 0)]
    lags = {one["name"]: (one["behind_bytes"], one["unknown"]) for one in listed[0]["subscribers"]}
    silent = "it has not told a position yet"
    assert lags == {f"{shell.scope}/told": (11, None), f"{shell.scope}/silent": (None, silent)}
    assert listed[1]["subscribers"] == []
    _, _, first, second = shell.text("stream", "list", shell.scope, "--lag").splitlines()
    assert first.split() == [shell.scope, "t", "11", "B", "or", "more", f"{shell.scope}/told", "and", "1", "more"]
    assert second.split() == [shell.scope, "u"]
    (measured, _) = shell.json("stream", "list", shell.scope, "--sizes", "--lag")
    assert (measured["bytes"], measured["subscribers"]) == (22, listed[0]["subscribers"])
    facts = shell.json("stream", "info", shell.stream)
    assert facts["subscribers"] == listed[0]["subscribers"]
    assert f"lag of {shell.scope}/silent  {silent}" in shell.text("stream", "info", shell.stream)
    assert "subscribers  none" in shell.text("stream", "info", f"{shell.scope}/u")


def test_what_is_in_a_stream(shell: Shell, tmp_path: Path) -> None:
    shell.run("stream", "create", shell.stream, "--segments", "2")
    shell.run("event", "write", shell.stream, "--key", "k", given=b"one\ntwo\nthree\n")
    size = {"scope": shell.scope, "stream": "t", "segments": 2, "bytes": 35}
    assert shell.json("stream", "list", shell.scope, "--sizes") == [size]
    assert "1 stream," in shell.text("stream", "list", shell.scope, "--sizes")
    (counted,) = shell.json("stream", "list", shell.scope, "--events", "--rates")
    assert counted == {**size, "events": 3, "bytes_per_s": 0.0}
    assert "bytes/s" in shell.text("stream", "list", shell.scope, "--rates")
    middle = StreamCut.from_text(shell.text("stream", "cut", shell.stream)).offsets
    shell.run("event", "write", shell.stream, "--key", "k", given=b"four\n")
    offset = json.dumps(SourceOffset({shell.stream: dict(middle)}, {shell.stream: {0: 0, 1: 0}}).to_json())
    for folder, text in (("offsets", f"v1\n{{}}\n{offset}"), ("commits", "v1\n{}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(text)
    facts = shell.json("stream", "info", shell.stream, "--events", "--rates", "--query", str(tmp_path))
    assert (facts["events"], facts["bytes"]) == (4, 47)
    assert facts["lag"] == {"batch": 0, "bytes": 12, "events": 1}
    assert facts["bytes_per_s"] == {"0": 0.0, "1": 0.0}
    shown = shell.text("stream", "info", shell.stream, "--events", "--query", str(tmp_path))
    assert "about 4 events" in shown and "about 1 event, after batch 0" in shown
    shell.run("stream", "create", f"{shell.scope}/other")
    complaint = shell.complaint("stream", "info", f"{shell.scope}/other", "--query", str(tmp_path))
    assert f"reads {shell.stream}, not {shell.scope}/other" in complaint


def test_events_are_read_from_a_time_on(shell: Shell) -> None:
    """Stores know times to some 64 KiB: a little of what was written before may be in it."""
    shell.run("stream", "create", shell.stream)
    shell.run("event", "write", shell.stream, given=b"an old event\n" * 10_000)
    between = datetime.now(UTC).isoformat(timespec="milliseconds")
    shell.run("event", "write", shell.stream, given=b"new\n" * 10)
    found = shell.lines(shell.stream, "--from", between)
    assert found[-10:] == ["new"] * 10
    assert len(found) < 5_000
    assert len(shell.lines(shell.stream, "--to", between)) >= 10_000
    assert len(shell.lines(shell.stream, "--from", "1h")) == 10_010
    assert StreamCut.from_text(shell.text("stream", "cut", shell.stream, between)).offsets[0] > 0
    assert "is no time" in shell.complaint("event", "read", shell.stream, "--from", "2026-99-99")


def test_truncation_at_what_a_query_has_finished(shell: Shell, tmp_path: Path) -> None:
    shell.run("stream", "create", shell.stream)
    shell.run("event", "write", shell.stream, given=b"done\n")
    done = {0: 12}
    shell.run("event", "write", shell.stream, given=b"planned\n")
    for batch, cut in ((0, done), (1, {0: 27})):
        offset = json.dumps(SourceOffset({shell.stream: cut}, {shell.stream: {0: 0}}).to_json())
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offset}")
    assert "has not finished any batch" in shell.complaint("stream", "truncate", shell.stream, "--query", str(tmp_path))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    assert shell.json("stream", "truncate", shell.stream, "--query", str(tmp_path), "--yes")["bytes"] == 12
    assert shell.lines() == ["planned"]
    shell.run("stream", "create", f"{shell.scope}/other")
    complaint = shell.complaint("stream", "truncate", f"{shell.scope}/other", "--query", str(tmp_path))
    assert f"reads {shell.stream}, not {shell.scope}/other" in complaint


def test_a_pipe_into_a_stream_and_out_again(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream, "--segments", "3")
    rows = [{"id": number, "user": f"u{number % 50}", "text": "ü" * (number % 7)} for number in range(20_000)]
    data = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    written = shell.run("event", "write", shell.stream, "--key-field", "user", "--json", given=data)
    assert json.loads(written) == {"stream": shell.stream, "events": 20_000}
    output = shell.run("event", "read", shell.stream)
    assert Counter(output.splitlines()) == Counter(data.splitlines())
    last: dict[str, int] = {}
    for line in output.splitlines():
        row = json.loads(line)
        assert last.get(row["user"], -1) < row["id"], "out of order"
        last[row["user"]] = row["id"]
    assert len(shell.lines(shell.stream, "--max", "17")) == 17


def test_formats_of_a_pipe(shell: Shell) -> None:
    first, second = f"{shell.scope}/first", f"{shell.scope}/second"
    shell.run("stream", "create", first)
    shell.run("stream", "create", second)
    events = [b"", b"with\nnewline", bytes(range(256)), "ü".encode()]
    prefixed = b"".join(struct.pack(">I", len(event)) + event for event in events)
    shell.run("event", "write", first, "--format", "length", given=prefixed)
    assert shell.run("event", "read", first, "--format", "length") == prefixed
    as_json = shell.run("event", "read", first, "--format", "json")
    assert shell.run("event", "read", first, "--json") == as_json
    assert "--json and --format length exclude" in shell.complaint(
        "event", "read", first, "--json", "--format", "length"
    )
    shell.run("event", "write", second, "--format", "json", given=as_json)
    with StreamClient(shell.controller) as client:
        assert [event.data for event in read_events(client, shell.scope, "second")] == events
    complaint = shell.complaint("event", "write", first, "--format", "json", given=b"oops\n")
    assert "event 1 is no JSON" in complaint
    assert "(0 events are durable, 0 more may be)" in complaint
    assert "does not exist; create it" in shell.complaint("event", "write", f"{shell.scope}/none", given=b"x\n")
    assert "exclude each other" in shell.complaint("event", "write", first, "--key", "a", "--key-field", "b")


def test_following_a_stream_from_a_slow_pipe(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream)
    shell.run("event", "write", shell.stream, given=b"before\n")
    follower = shell.start("event", "read", shell.stream, "--follow", "--max", "4")
    writer = shell.start("event", "write", shell.stream)
    assert follower.stdout is not None
    assert writer.stdin is not None
    assert follower.stdout.readline() == b"before\n"
    for line in (b"one\n", b"two\n"):
        # Each comes out before the next one goes in, though the writer's input stays open.
        writer.stdin.write(line)
        writer.stdin.flush()
        assert follower.stdout.readline() == line
    shell.run("stream", "scale", shell.stream, "--segments", "2")
    writer.stdin.write(b"three\n")
    writer.stdin.close()
    assert follower.stdout.readline() == b"three\n"
    assert (writer.wait(command_time_max_s), follower.wait(command_time_max_s)) == (0, 0)


def test_a_reader_that_has_enough_is_no_error(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream)
    shell.run("event", "write", shell.stream, given=b"a line of some length\n" * 200_000)
    reader = shell.start("event", "read", shell.stream)
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == b"a line of some length\n"
    reader.stdout.close()
    assert (reader.wait(command_time_max_s), reader.stderr.read()) == (0, b"")


def test_subscribers(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream)
    scope, stream = shell.stream.split("/")
    name = f"{scope}/query-{uuid.uuid4().hex[:8]}"
    with StreamClient(shell.controller) as client:
        ReaderGroupClient(client.controller.transport).subscribe(scope, name.split("/")[1], [(scope, stream)])
    assert name in shell.json("subscriber", "list", shell.stream)
    assert name in shell.text("subscriber", "list", shell.stream)
    assert "needs --yes" in shell.complaint("subscriber", "remove", name)
    assert shell.json("subscriber", "remove", name, "--yes") == {"subscriber": name, "removed": True}
    assert name not in shell.json("subscriber", "list", shell.stream)
    assert "there is no subscriber" in shell.complaint("subscriber", "remove", name, "--yes")


def test_a_scope_is_emptied_and_deleted(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream)
    with StreamManager(shell.controller) as manager:
        manager.create_reader_group(shell.scope, "readers", ["t"], retention=ReaderGroupRetention.AUTOMATIC)
        manager.create_reader_group(shell.scope, "unlisted", ["t"])
        manager.create_key_value_table(shell.scope, "names", primary_key_length=8)
    assert shell.json("group", "list", shell.scope) == [{"scope": shell.scope, "group": "readers"}]
    assert shell.json("table", "list", shell.scope) == [{"scope": shell.scope, "table": "names"}]
    left = shell.complaint("scope", "delete", shell.scope, "--yes")
    assert f"stream delete {shell.stream} --seal; 1 reader group (readers), which goes by: pravega-spark gr" in left
    shell.run("stream", "delete", shell.stream, "--seal", "--yes")
    shell.run("table", "delete", f"{shell.scope}/names", "--yes")
    for group in ("readers", "unlisted"):
        shell.run("group", "delete", f"{shell.scope}/{group}", "--yes")
        assert "see pravega-spark group list" in shell.complaint("group", "delete", f"{shell.scope}/{group}", "--yes")
    assert shell.json("group", "list", shell.scope) == []
    assert shell.json("scope", "delete", shell.scope, "--yes") == {"scope": shell.scope, "deleted": True}


def test_a_byte_stream_that_was_truncated(shell: Shell) -> None:
    """Its client truncates the segment at the store, and no controller hears of it."""
    shell.run("stream", "create", shell.stream)
    with StreamClient(shell.controller) as client, ByteStream(client, shell.scope, "t") as file:
        file.write(b"bytes that are no events " * 100)
        file.flush()
        file.truncate(1_000)
    for words in (
        ["stream", "list", shell.scope, "--events"],
        ["stream", "info", shell.stream, "--events"],
        ["stream", "truncate", shell.stream, "--at", "tail", "--dry-run"],
        ["stream", "truncate", shell.stream, "--before", "1h", "--dry-run"],
        ["stream", "cut", shell.stream, "12h"],
    ):
        process = shell.start(*words)
        _, said = process.communicate(timeout=command_time_max_s)
        assert (process.returncode, said.decode()) == (0, ""), words
    assert shell.json("stream", "list", shell.scope, "--events")[0]["bytes"] == 1_500
    assert shell.json("stream", "cut", shell.stream, "head")["segments"][0]["offset"] == 1_000
    for words in (["event", "read", shell.stream], ["stream", "retain", shell.stream, "--bytes", "100", "--once"]):
        said_why = shell.complaint(*words)
        assert "in the data from offset 1000 on, no event begins at byte 0" in said_why
        assert "or the stream has bytes that are no events, as a byte stream does" in said_why


def test_sinks(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream)
    query = f"query-{uuid.uuid4()}"
    name = f"orders of {shell.scope}"
    sink = Sink(query, shell.stream, label=name)
    with StreamClient(shell.controller) as client:
        transaction = TransactionalWriter(client, shell.scope, "t").begin()
        transaction.write(b"event", "k")
        transaction.flush()
        member = SetMember(shell.scope, "t", transaction.transaction_id, 0, 1, 13)
        client.sets.register(sink, "run-1", 7, [member])
        assert client.sets.commit(sink, "run-1", 7, [member], 1, 13).status is CommitStatus.COMMITTED
    (listed,) = [item for item in shell.json("sink", "list") if item["query_id"] == query]
    assert (listed["destination"], listed["last_committed_batch_id"], listed["job_id"]) == (shell.stream, 7, None)
    shown = shell.json("sink", "show", query[:20])
    assert (shown["batch"]["events"], shown["batch"]["members"][0]["bytes"]) == (1, 13)
    assert shown["batch"]["members"][0]["transaction"] == str(transaction.transaction_id)
    assert query in shell.text("sink", "show", query)
    # The name of a query is shown and finds it, but nothing is forgotten by it.
    assert listed["name"] == name and name in shell.text("sink", "list")
    assert shell.json("sink", "show", name)["query_id"] == query
    assert f"'{name}' is the name of a query" in shell.complaint("sink", "forget", name, "--yes")
    # A backfill has the name that its user gave it.
    with StreamClient(shell.controller) as client:
        table = BlockingTable(client.segments, claims_segment(shell.scope))
        JobClaims(table, lambda: 0).put(JobClaim("history", query, shell.stream, 0, "/f", "h"), None)
    assert shell.json("sink", "show", "history")["job_id"] == "history"
    assert "backfill history" in shell.text("sink", "list")
    assert shell.json("sink", "show", query, "--batch", "9")["batch"]["state"] == "none"
    assert "no sink 'nobody' is on record" in shell.complaint("sink", "show", "nobody")


def test_doctor(shell: Shell) -> None:
    found = json.loads(shell.run("doctor", "--json"))
    assert found["ok"]
    names = [item["check"] for item in found["checks"]]
    assert {"python", "java", "pyspark", "pyarrow", "controller", "segment stores", "round trip"} <= set(names)
    assert any(name.startswith(("segment store 127.0.0.1:", "segment store localhost:")) for name in names)
    open_ = {item["check"]: (item["ok"], item["remedy"]) for item in found["checks"] if "security" in item["check"]}
    has_tls, has_users = (part in security_of_suite() or None for part in ("tls", "auth"))
    assert open_["security: TLS"][0] is has_tls and (has_tls or "tls://" in open_["security: TLS"][1])
    assert open_["security: authentication"][0] is has_users
    assert open_["security: keys of the cluster"] == (True, "")
    with StreamClient(shell.controller) as client:
        assert not [scope for scope in client.controller.list_scopes() if scope.startswith("doctor-")]


def test_doctor_where_nobody_answers(shell: Shell) -> None:
    shell.environment["PRAVEGA_CONTROLLER"] = "tcp://127.0.0.1:1"
    started_s = time.monotonic()
    found = json.loads(shell.run("doctor", "--json", status=1))
    assert time.monotonic() - started_s < 30
    (controller,) = [item for item in found["checks"] if item["check"] == "controller"]
    assert controller["ok"] is False
    assert "pravega-spark standalone" in controller["remedy"]
    assert "no controller answers at tcp://127.0.0.1:1" in shell.complaint("stream", "list")


def test_a_writer_rides_out_a_store_that_restarts(shell: Shell, cluster: StandaloneProcess) -> None:
    shell.run("stream", "create", shell.stream)
    writer = shell.start("event", "write", shell.stream)
    assert writer.stdin is not None
    for number in range(300):
        writer.stdin.write(f"{number}\n".encode())
        writer.stdin.flush()
        if number == 100:
            pid = cluster.kill("segment-store-0")
        # Lines come in as from a real producer, so that the store's restart lies among them.
        time.sleep(tick_s)
    cluster.wait_restarted("segment-store-0", pid)
    writer.stdin.close()
    assert writer.wait(command_time_max_s) == 0
    assert [int(line) for line in shell.lines()] == list(range(300))


def test_events_of_the_client_library_are_read(shell: Shell) -> None:
    shell.run("stream", "create", shell.stream)
    with StreamClient(shell.controller) as client, EventWriter(client, shell.scope, "t") as writer:
        writer.write(b"hello", "k")
    assert shell.lines() == ["hello"]
