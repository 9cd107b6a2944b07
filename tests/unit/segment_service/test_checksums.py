"""Checksums of stretches give that of the whole, however they are cut."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from segment_service.contracts.checksums import checksum_of, joined_checksum


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_the_checksum_of_buffers_is_that_of_the_whole(buffers: list[bytes]) -> None:
    assert checksum_of(buffers) == crc32c(b"".join(buffers))
    assert checksum_of(buffers, crc32c(b"before")) == crc32c(b"before" + b"".join(buffers))


@given(st.binary(max_size=300), st.binary(max_size=3_000))
def test_two_checksums_give_that_of_both(first: bytes, second: bytes) -> None:
    assert joined_checksum(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("length", [0, 1, (1 << 16) - 1, 1 << 16, (1 << 20) - 56, 1 << 20, (1 << 21) + 12_345])
def test_a_long_second_stretch(length: int) -> None:
    second = random.Random(length).randbytes(length)
    assert joined_checksum(crc32c(b"a header"), crc32c(second), length) == crc32c(b"a header" + second)
