"""Keys of other types are routed as the texts that a client of Pravega would give."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from pravega_common.hashing import position_of_key
from pravega_common.model.segments import SegmentRange
from pravega_spark.rows.keys import key_texts
from pravega_spark.sink.routing import RowRouter


def text_of(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key.decode("latin-1")


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_integers_are_decimal(kind: pa.DataType) -> None:
    assert key_texts(pa.array([0, -7, None, 100], kind)).to_pylist() == ["0", "-7", None, "100"]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_binary()])
def test_bytes_that_are_text_are_that_text(kind: pa.DataType) -> None:
    texts = ["", "a", None, "\u00fc", "\u20ac", "\U0001f600", "key-1"]
    keys = pa.array([text if text is None or kind == pa.string() else text.encode() for text in texts], kind)
    assert key_texts(keys).to_pylist() == texts


def test_other_bytes_are_characters_of_their_numbers() -> None:
    edges = [b"\xff", b"\x80", b"a\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf5", b"\xe0\x80\x80"]
    keys = [b"", None, "\u00fc".encode(), *edges, b"plain", (5).to_bytes(8, "big"), (2**40 + 200).to_bytes(8, "big")]
    made = key_texts(pa.array(keys, pa.binary())).to_pylist()
    assert made == [None if key is None else text_of(key) for key in keys]


def test_random_bytes_one_by_one_and_together() -> None:
    """What a key becomes must not depend on the keys beside it, or its events would leave their order."""
    rng = random.Random(5)
    pieces = [b"\xc3\xbc", b"\xff", b"a", b"\xe2\x82\xac", b"\x80", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\n", b"\0"]
    keys = [b"".join(rng.choices(pieces, k=rng.randrange(5))) for _ in range(500)]
    together = key_texts(pa.array([b"skipped", *keys], pa.binary()).slice(1))
    assert together.to_pylist() == [text_of(key) for key in keys]
    assert [key_texts(pa.array([key], pa.binary()))[0].as_py() for key in keys[:50]] == together.to_pylist()[:50]


@pytest.mark.parametrize("distinct", [5, 10_000], ids=["repeated", "each once"])
def test_rows_go_where_the_text_goes(distinct: int) -> None:
    router = RowRouter([SegmentRange("s", "t", index, index / 4, (index + 1) / 4) for index in range(4)], 0)
    numbers = np.arange(1_000) % distinct
    lengths = np.full(1_000, 10, dtype=np.int64)
    for keys in (pa.array(numbers), pa.array([str(item).encode() for item in numbers], pa.binary())):
        found = router.key_positions(keys, lengths)
        assert found.tolist() == [position_of_key(str(item)) for item in numbers]


@pytest.mark.parametrize("count", [3, 1_000], ids=["each once", "repeated"])
def test_a_text_that_is_no_utf8_goes_where_its_bytes_go(count: int) -> None:
    """Spark does not look what is in its texts: lines of a file in another encoding, a cast of bytes."""
    router = RowRouter([SegmentRange("s", "t", 0, 0.0, 1.0)], 0)
    keys = [(b"caf\xe9", "na\u00efve".encode(), None)[index % 3] for index in range(count)]
    as_bytes = pa.array(keys, pa.binary())
    as_texts = pa.Array.from_buffers(pa.string(), count, as_bytes.buffers())
    lengths = np.full(count, 10, dtype=np.int64)
    found = router.key_positions(as_texts, lengths)
    assert found.tolist() == router.key_positions(as_bytes, lengths).tolist()
    assert found[:2].tolist() == [position_of_key("caf\u00e9"), position_of_key("na\u00efve")]
