"""All records that go into frames come out of them again, whole, in order, however they are cut."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from segment_service.contracts.data_log import LogAddress, LogEntry, frame_bytes_max
from segment_service.durable_log.data_frame_builder import BuiltFrame, DataFrameBuilder
from segment_service.durable_log.data_frame_reader import DataFrameReader

near_the_limit = st.integers(-70, 70).map(lambda delta: frame_bytes_max + delta)
sizes = st.one_of(st.integers(1, 200), st.integers(1, 3 * frame_bytes_max), near_the_limit)
records = st.lists(
    st.tuples(st.sampled_from(["record", "checkpoint", "close"]), sizes, st.integers(1, 3)), min_size=1, max_size=12
)


def feed(frames: Iterable[BuiltFrame[int]], reader: DataFrameReader) -> list[tuple[bytes, bool]]:
    out = []
    for number, frame in enumerate(frames):
        payload = b"".join(frame.buffers)
        assert len(payload) == frame.length <= frame_bytes_max
        for record in reader.feed(LogEntry(LogAddress(0, number), memoryview(payload))):
            out.append((bytes(record.data), record.begins_frame))
    return out


@settings(max_examples=60, deadline=None)
@given(records)
def test_round_trip(steps: list[tuple[str, int, int]]) -> None:
    builder: DataFrameBuilder[int] = DataFrameBuilder(1)
    expected: list[tuple[bytes, bool]] = []
    for number, (kind, size, pieces) in enumerate(steps):
        if kind == "close":
            builder.close()
            continue
        data = bytes([number % 256]) * size
        cut = size // pieces
        body = [data[1:][i * cut : (i + 1) * cut if i < pieces - 1 else None] for i in range(pieces)]
        add = builder.add_checkpoint if kind == "checkpoint" else builder.add
        add(data[:1], body, size, len(expected))
        expected.append((data, kind == "checkpoint"))
    builder.close()
    assert feed(builder.full, DataFrameReader()) == expected
    assert [tag for frame in builder.full for tag in frame.completed] == list(range(len(expected)))
    assert all(frame.length > frame_bytes_max - 200 for frame in list(builder.full)[:-1]) or any(
        kind != "record" for kind, _, _ in steps
    ), "frames are filled before another is begun"


@settings(max_examples=40, deadline=None)
@given(st.lists(sizes, min_size=1, max_size=6), st.data())
def test_after_a_crash_the_whole_records_are_there_and_the_next_owner_goes_on(
    lengths: list[int], data: st.DataObject
) -> None:
    old: DataFrameBuilder[int] = DataFrameBuilder(1)
    for number, length in enumerate(lengths):
        old.add(b"", [bytes([number]) * length], length, number)
    old.close()
    survived = data.draw(st.integers(0, len(old.full)))
    frames = list(old.full)[:survived]
    completed = [number for frame in frames for number in frame.completed]
    new: DataFrameBuilder[int] = DataFrameBuilder(2)
    new.add(b"next", [], 4, 0)
    new.close()
    read = feed([*frames, *new.full], DataFrameReader())
    assert [record for record, _ in read] == [bytes([number]) * lengths[number] for number in completed] + [b"next"]
