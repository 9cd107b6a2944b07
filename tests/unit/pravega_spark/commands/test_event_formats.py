"""Tests that the same events come out of a pipe however its bytes are cut into chunks."""

from __future__ import annotations

import base64
import itertools
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_common.errors import InvalidArgument
from pravega_spark.commands.event_formats import Format, Parser, _column_of, line_bytes_max, printer_of
from pravega_spark.rows.framing import event_bytes_max


def parsed(parser: Parser, data: bytes, cuts: list[int] | None = None) -> list[tuple[bytes, str | None]]:
    edges = [0, *sorted(cuts or []), len(data)]
    batches = [parser.feed(data[first:last]) for first, last in itertools.pairwise(edges)]
    batches.append(parser.end())
    return [(row["event"], row["routing_key"]) for batch in batches for row in batch.to_pylist()]


def events(parser: Parser, data: bytes) -> list[bytes]:
    return [event for event, _ in parsed(parser, data)]


def printed(wanted: Format, given_events: list[bytes]) -> bytes:
    offsets = np.arange(len(given_events), dtype=np.int64) * 100
    return bytes(printer_of(wanted)(pa.array(given_events, pa.binary()), offsets, 7))


def test_lines() -> None:
    assert events(Parser(Format.LINES), b"one\n\ntwo\r\nlast") == [b"one", b"", b"two\r", b"last"]
    assert events(Parser(Format.LINES), b"one\n") == [b"one"]
    assert events(Parser(Format.LINES), b"") == []
    assert parsed(Parser(Format.LINES, key="k"), b"a\nb\n") == [(b"a", "k"), (b"b", "k")]


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(0, 400), max_size=6), st.sampled_from(list(Format)))
def test_what_is_printed_is_parsed_again(given_events: list[bytes], cuts: list[int], wanted: Format) -> None:
    if wanted is Format.LINES:
        given_events = [event.replace(b"\n", b"") for event in given_events]
    data = printed(wanted, given_events)
    found = parsed(Parser(wanted), data, [min(cut, len(data)) for cut in cuts])
    assert [event for event, _ in found] == given_events


def test_length_prefixed_input_that_is_none() -> None:
    assert events(Parser(Format.LENGTH), struct.pack(">I", 2) + b"ab" + struct.pack(">I", 0)) == [b"ab", b""]
    with pytest.raises(InvalidArgument, match=r"event 1 has a length of 1886151017 bytes.*length-prefixed"):
        events(Parser(Format.LENGTH), b"plain text")
    with pytest.raises(InvalidArgument, match="the input ends in the middle of event 2"):
        events(Parser(Format.LENGTH), struct.pack(">I", 0) + struct.pack(">I", 9) + b"short")


def test_an_endless_line_is_an_error_before_it_fills_the_memory() -> None:
    with pytest.raises(InvalidArgument, match=f"event 2 is larger than {event_bytes_max} bytes"):
        Parser(Format.LINES).feed(b"one\n" + b"x" * (event_bytes_max + 5))
    with pytest.raises(InvalidArgument, match=f"the line of event 2 is larger than {line_bytes_max} bytes"):
        Parser(Format.JSON).feed(b"{}\n" + b" " * (line_bytes_max + 1))


@pytest.mark.parametrize("byte", [b"\xff", b"\x01"])
def test_a_json_line_may_be_larger_than_an_event(byte: bytes) -> None:
    """Base64 takes a third more than the event, and a control character six bytes for one."""
    large = byte * event_bytes_max
    line = printed(Format.JSON, [large])
    assert events(Parser(Format.JSON, key="k"), line[:-2] + b', "key": "k"}\n') == [large]
    assert parsed(Parser(Format.JSON), line, [len(line) - 2]) == [(large, None)]


@pytest.mark.parametrize(
    ("line", "field", "key"),
    [
        ({"id": "a", "text": "ü"}, "id", "a"),
        ({"id": 5}, "id", "5"),
        ({"id": None}, "id", None),
        ({"id": {"x": 1}}, "id", '{"x": 1}'),
        ({"id": {"x": "deep"}}, "id.x", "deep"),
        ({"id": {"x": None}}, "id.x", None),
        ({"id": True}, "id", "true"),
    ],
)
def test_the_key_of_a_json_event(line: Any, field: str, key: str | None) -> None:
    data = json.dumps(line).encode() + b"\n"
    assert parsed(Parser(Format.LINES, field), data) == [(data[:-1], key)]
    # Among lines whose member is a text it goes the fast way, where it can.
    text = b'{"id":"text"}\n' if field == "id" else b'{"id":{"x":"text"}}\n'
    assert [found for _, found in parsed(Parser(Format.LINES, field), text + data + text)] == ["text", key, "text"]


@pytest.mark.parametrize("wanted", [Format.LINES, Format.JSON])
@pytest.mark.parametrize(
    ("good", "field", "bad"),
    [
        ({"id": "a"}, "id", {"other": 1}),
        ({"id": None}, "id", {}),
        ({"id": {"x": "a"}}, "id.x", {"id": "no object"}),
        ({"id": {"x": None}}, "id.x", {"id": None}),
        ({"id": {"x": "a"}}, "id.x", {"id": {"y": "a"}}),
    ],
)
def test_an_event_without_the_member_of_its_key_is_refused(wanted: Format, good: Any, field: str, bad: Any) -> None:
    """Without a key it would go to any segment, and could be read before earlier events of its key."""
    data = b"".join(json.dumps(line).encode() + b"\n" for line in (good, good, bad, good))
    with pytest.raises(InvalidArgument, match=f"event 3 has no member '{field}' for its routing key"):
        events(Parser(wanted, field), data)


def test_keys_of_lines_that_are_no_json() -> None:
    with pytest.raises(InvalidArgument, match="event 2 is no JSON: b'oops'"):
        events(Parser(Format.LINES, "id"), b'{"id":"a"}\noops\n')
    with pytest.raises(InvalidArgument, match="event 1 is no JSON object"):
        events(Parser(Format.LINES, "id"), b"[1]\n")
    with pytest.raises(InvalidArgument, match="event 2 is no JSON"):
        events(Parser(Format.LINES, "id"), b'{"id":"a"}\n\n{"id":"b"}\n')


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"id":"a"} {"id":"b"}', b""],
        [b"", b'{"id":"a"}{"id":"b"}'],
        [b'{"id":"a"} {"id":"b"}', b" \t", b'{"id":"c"}'],
        [b'{"id":"a"} {"id":', b'"b"}'],
        [b'{"id":', b'"a"} {"id":"b"}'],
    ],
)
def test_lines_that_are_not_one_object_each_are_refused(lines: list[bytes]) -> None:
    """A reader of JSON that cares for no lines finds as many objects, and the keys of other lines."""
    data = b"\n".join([b'{"id":"first"}', *lines, b'{"id":"last"}', b""])
    for cuts in ([], [data.find(lines[0] + b"\n")], list(range(len(data)))):
        with pytest.raises(InvalidArgument, match=r"event [23] is no JSON"):
            parsed(Parser(Format.LINES, "id"), data, cuts)


def test_lines_that_are_no_utf8_are_refused() -> None:
    for line in (b'{"id":"\xff"}', b'{"id":"a","text":"\xff"}'):
        with pytest.raises(InvalidArgument, match="event 2 is no JSON"):
            events(Parser(Format.LINES, "id"), b'{"id":"a"}\n' + line + b"\n")


def test_lines_with_blanks_around_them_have_their_keys_at_once() -> None:
    lines = [b' {"id":"a"}\r', b'{"id":"b"}\t', b'{"id":"c"}']
    assert parsed(Parser(Format.LINES, "id"), b"\n".join(lines)) == list(zip(lines, "abc", strict=True))
    found = _column_of(lines, "id")
    assert found is not None and found.to_pylist() == ["a", "b", "c"]


def test_json_events() -> None:
    lines = [{"event": "text", "key": "k"}, {"event": {"a": 1}}, {"event_base64": "AAE="}, {"event": ""}]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert parsed(Parser(Format.JSON), data) == [(b"text", "k"), (b'{"a": 1}', None), (b"\0\1", None), (b"", None)]
    with pytest.raises(InvalidArgument, match="event_base64 of event 1 is no Base64"):
        events(Parser(Format.JSON), b'{"event_base64":"?"}\n')


def test_json_lines_that_hold_no_event_are_events_as_they_are() -> None:
    """Also one with a member ``event`` beside others, which would be lost."""
    lines = [b'{"user": "a",  "n":1}', b'{"event":"click","user":"b"}', b'{"n":2}']
    data = b"\n".join(lines)
    assert parsed(Parser(Format.JSON), data) == [(line, None) for line in lines]
    assert parsed(Parser(Format.JSON, "user"), b"\n".join(lines[:2])) == [(lines[0], "a"), (lines[1], "b")]
    assert parsed(Parser(Format.JSON, key="k"), data) == [(line, "k") for line in lines]


def test_the_key_of_a_wrapped_event_is_a_member_of_the_event() -> None:
    """As ``event read --json`` writes them: without it the events of a key went to several segments."""
    inner = b'{"user":"a","at":{"city":"x"}}'
    lines = [
        {"event": inner.decode(), "segment": 0, "offset": 7},
        {"event": {"user": "a", "at": {"city": "x"}}},
        {"event_base64": base64.b64encode(inner).decode()},
        {"event": inner.decode(), "key": "other"},
    ]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    for field, keys in (("user", "aaaa"), ("at.city", "xxxx")):
        assert [key for _, key in parsed(Parser(Format.JSON, field), data)] == list(keys), field
    assert parsed(Parser(Format.JSON, "key"), data.splitlines()[3]) == [(inner, "other")]
    with pytest.raises(InvalidArgument, match="event 1 has no member 'key'"):
        events(Parser(Format.JSON, "key"), data)
    with pytest.raises(InvalidArgument, match="event 1 is no JSON"):
        events(Parser(Format.JSON, "user"), b'{"event":"text"}\n')


@pytest.mark.parametrize(
    ("line", "field", "wanted"),
    [
        (b'{"event":"\\ud800"}', "", Format.JSON),
        (b'{"event":{"a":"\\udfff"}}', "", Format.JSON),
        (b'{"event":"x","key":"\\ud800"}', "", Format.JSON),
        (b'{"id":"\\ud800"}', "id", Format.LINES),
    ],
)
def test_half_a_character_is_no_text(line: bytes, field: str, wanted: Format) -> None:
    with pytest.raises(InvalidArgument, match="event 2 holds a text that is not Unicode"):
        events(Parser(wanted, field), b'{"event":"whole","id":"a"}\n' + line + b"\n")


@pytest.mark.parametrize(
    "number", ["1e400", "-1e999", "1e-99999999999999999999", "0.12345678901234567890", "100000000000000000.5"]
)
def test_a_number_that_would_be_rounded_is_refused(number: str) -> None:
    """In an event that is a JSON value; one that is a line of its own, or a text, stays as it is."""
    wrapped = f'{{"event": {{"n": [{number}]}}}}'
    with pytest.raises(InvalidArgument, match=f"number {number} of event 2 would become .* write the event as a text"):
        events(Parser(Format.JSON), f'{{"event": {{"n": 1.10}}}}\n{wrapped}\n'.encode())
    for line, event in ((f'{{"n":{number}}}', f'{{"n":{number}}}'), (f'{{"event":"{number}"}}', number)):
        assert parsed(Parser(Format.JSON), line.encode()) == [(event.encode(), None)]


def test_numbers_of_any_length_that_are_whole_stay() -> None:
    event = f'{{"n": {10**40}, "m": -1.5e-07, "k": 0.1}}'
    assert parsed(Parser(Format.JSON), f'{{"event": {event}}}\n'.encode()) == [(event.encode(), None)]


def test_an_event_that_is_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="event 1 has both members, event and event_base64"):
        events(Parser(Format.JSON), b'{"event":"a","event_base64":"AAE="}\n')


def test_json_that_is_too_deep() -> None:
    with pytest.raises(InvalidArgument, match="event 1 is no JSON"):
        events(Parser(Format.JSON), b"[" * 100_000 + b"\n")


def test_json_output_says_where_an_event_lies() -> None:
    lines = [json.loads(line) for line in printed(Format.JSON, ["ü".encode(), b"\xff"]).splitlines()]
    assert lines == [
        {"event": "ü", "segment": 7, "offset": 0},
        {"event_base64": "/w==", "segment": 7, "offset": 100},
    ]
