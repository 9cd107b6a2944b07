"""Encodes the values of an attribute index: a sorted map whose keys are the ids of writers' attributes.

Layout of a value, big-endian: version u8 (1) | value i64. An attribute that is absent has no entry.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from pravega_common.errors import DataCorruption, PravegaError
from segment_service.contracts.attributes import NULL_ATTRIBUTE_VALUE, AttributeId

VALUE_VERSION: Final = 1

_VALUE: Final = struct.Struct(">Bq")


def encode_value(value: int) -> bytes:
    return _VALUE.pack(VALUE_VERSION, value)


def decode_value(data: bytes, place: str) -> int:
    """``DataCorruption`` that names the place if the bytes are no value of the version known here."""
    if data[:1] != bytes((VALUE_VERSION,)):
        raise DataCorruption(
            f"{place}: an attribute of {len(data)} bytes has version {data[0] if data else 'none'}; this program reads "
            f"{VALUE_VERSION}: if a newer program wrote it, run that one"
        )
    if len(data) != _VALUE.size:
        raise DataCorruption(f"{place}: an attribute of {len(data)} bytes; its fields take {_VALUE.size}")
    value: int = _VALUE.unpack(data)[1]
    return value


def decoded(
    found: Mapping[bytes, bytes], attribute_ids: Sequence[AttributeId], place: str
) -> dict[AttributeId, int | PravegaError]:
    """The values of these attributes, ``NULL_ATTRIBUTE_VALUE`` for those that were not found; errors as above."""
    return {
        one: NULL_ATTRIBUTE_VALUE if (data := found.get(one)) is None else decode_value(data, place)
        for one in attribute_ids
    }
