"""Packs key, headers and timestamp with an event into an envelope, and unpacks it, as Spark functions.

A Pravega event has no key, headers or time of its own. An envelope puts them into the event, and gives them back. Both
functions are made of Spark's own expressions: no Python runs for a row, and they work wherever a column does, also over
Spark Connect. They need nothing of this package on the executors.

Layout of an envelope, version 1, numbers big-endian::

    byte 0      0xE7, which begins no UTF-8 text, so no JSON and no line
    byte 1      version, 1
    byte 2      what is not null: 1 key, 2 value, 4 headers, 8 timestamp; higher bits are 0
    bytes 3-10  i64 timestamp, microseconds since 1970-01-01 UTC; 0 if null
    bytes 11-14 i32 length of the key in bytes; 0 if null
    bytes 15-18 i32 length of the headers in bytes; 0 if null
    then        key | headers | value: the rest. Headers are JSON in UTF-8, in order, values in Base64:
                [{"key":"name","value":"AAE="},…]; a null key or value is left out, a null header is null

The connector's own records (option ``format``, docs/records.md) are version 2, whose headers are binary.

An event whose version is higher than this module knows is an error that says so, never a guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

ENVELOPE_MAGIC: Final = 0xE7
ENVELOPE_VERSION: Final = 1
envelope_header_bytes: Final = 19

_KEY, _VALUE, _HEADERS, _TIMESTAMP = 1, 2, 4, 8
_PREFIX: Final = f"{ENVELOPE_MAGIC:02X}{ENVELOPE_VERSION:02X}"
_HEADERS_JSON: Final = "array<struct<key:string,value:string>>"
_ENVELOPE_TYPE: Final = (
    "struct<key:binary,value:binary,headers:array<struct<key:string,value:binary>>,timestamp:timestamp>"
)


def to_envelope(
    key: Column | str | None,
    value: Column | str | None,
    headers: Column | str | None = None,
    timestamp: Column | str | None = None,
) -> Column:
    """An event (binary, never null) of a key, a value, headers and a time; each a column, its name, or None.

    ``key`` and ``value``: binary or string. ``headers``: array of structs with ``key`` (string) and ``value`` (binary
    or string), as Spark's Kafka source gives them. ``timestamp``: a timestamp, kept to the microsecond. Nulls stay
    null, and differ from empty values. The routing key is not taken from here: give it to the sink as its own column.
    """
    key_bytes, value_bytes = _binary(key), _binary(value)
    headers_bytes = _encoded_headers(headers)
    micros = F.unix_micros(_column(timestamp).cast("timestamp"))
    present = (
        _flag(key_bytes, _KEY) + _flag(value_bytes, _VALUE) + _flag(headers_bytes, _HEADERS) + _flag(micros, _TIMESTAMP)
    )
    return F.concat(
        F.unhex(
            F.concat(
                F.lit(_PREFIX),
                _hex(present, 2),
                _hex(F.coalesce(micros, F.lit(0)).cast("bigint"), 16),
                _hex(_length(key_bytes), 8),
                _hex(_length(headers_bytes), 8),
            )
        ),
        _or_empty(key_bytes),
        _or_empty(headers_bytes),
        _or_empty(value_bytes),
    )


def from_envelope(event: Column | str, *, invalid: str = "fail") -> Column:
    """The parts of an envelope: a struct of key and value (binary), headers and timestamp.

    A null event gives a null struct. An event that is no envelope, is cut short, or is of another version fails the
    query with an error that says which; with ``invalid="null"`` it gives a null struct. ``ValueError`` for another
    ``invalid``.
    """
    if invalid not in ("fail", "null"):
        raise ValueError(f"invalid is '{invalid}', but must be 'fail' or 'null'")
    data = _column(event).cast("binary")
    present, key_length, headers_length = _number(data, 2, 1), _number(data, 11, 4), _number(data, 15, 4)
    headers_at = F.lit(envelope_header_bytes) + key_length
    value_at = headers_at + headers_length
    envelope = F.struct(
        _if(present, _KEY, _slice(data, F.lit(envelope_header_bytes), key_length)).alias("key"),
        _if(present, _VALUE, _slice(data, value_at, F.octet_length(data))).alias("value"),
        _if(present, _HEADERS, _decoded_headers(_slice(data, headers_at, headers_length))).alias("headers"),
        _if(present, _TIMESTAMP, F.timestamp_micros(_number(data, 3, 8))).alias("timestamp"),
    ).cast(_ENVELOPE_TYPE)
    is_ours = F.coalesce(F.hex(F.substring(data, 1, 2)) == F.lit(_PREFIX), F.lit(False))
    is_headed = F.octet_length(data) >= envelope_header_bytes
    # Without the check of the header the lengths are nonsense, so they are only looked at within it.
    is_whole = F.when(is_ours & is_headed, value_at <= F.octet_length(data)).otherwise(F.lit(False))
    otherwise = F.lit(None).cast(_ENVELOPE_TYPE)
    if invalid == "fail":
        otherwise = F.when(data.isNotNull(), F.raise_error(_complaint(data)).cast(_ENVELOPE_TYPE))
    return F.when(is_whole, envelope).otherwise(otherwise)


def _complaint(data: Column) -> Column:
    """The error text for bytes that are no envelope of this version."""
    first, version = F.hex(F.substring(data, 1, 1)), _number(data, 1, 1)
    start = F.hex(F.substring(data, 1, envelope_header_bytes))
    size = F.octet_length(data).cast("string")
    of_other_version = (first == f"{ENVELOPE_MAGIC:02X}") & (version != ENVELOPE_VERSION)
    return F.when(
        of_other_version,
        F.concat(
            F.lit("an event holds an envelope of version "),
            version.cast("string"),
            F.lit(
                f", this function reads version {ENVELOPE_VERSION}; read version 2 with option format=record, others "
                "with the pravega-spark that wrote them, or newer"
            ),
        ),
    ).otherwise(
        F.concat(
            F.lit("an event of "),
            size,
            F.lit(" bytes is no whole envelope (it begins with 0x"),
            start,
            F.lit("); write events with to_envelope, or read them with invalid='null'"),
        )
    )


# ---- parts -----------------------------------------------------------------------------------------------------------


def _column(given: Column | str | None) -> Column:
    if given is None:
        return F.lit(None)
    return F.col(given) if isinstance(given, str) else given


def _binary(given: Column | str | None) -> Column:
    return _column(given).cast("binary")


def _encoded_headers(given: Column | str | None) -> Column:
    if given is None:
        return F.lit(None).cast("binary")
    plain = F.transform(
        _column(given),
        lambda header: F.when(
            header.isNotNull(),
            F.struct(header["key"].cast("string").alias("key"), _base64(header["value"]).alias("value")),
        ),
    )
    return F.to_json(plain).cast("binary")


def _base64(data: Column) -> Column:
    """Without line breaks, which Spark makes or not as its configuration says."""
    return F.translate(F.base64(data.cast("binary")), "\r\n", "")


def _decoded_headers(data: Column) -> Column:
    plain = F.from_json(F.decode(data, "UTF-8"), _HEADERS_JSON)
    return F.transform(
        plain,
        lambda header: F.when(
            header.isNotNull(), F.struct(header["key"].alias("key"), F.unbase64(header["value"]).alias("value"))
        ),
    )


def _flag(column: Column, bit: int) -> Column:
    return F.when(column.isNull(), F.lit(0)).otherwise(F.lit(bit))


def _length(column: Column) -> Column:
    return F.coalesce(F.octet_length(column), F.lit(0))


def _or_empty(column: Column) -> Column:
    return F.coalesce(column, F.lit(b""))


def _hex(number: Column, digits: int) -> Column:
    """Two's complement, which ``hex`` gives a negative number in 16 digits anyhow."""
    return F.lpad(F.hex(number), digits, "0")


def _number(data: Column, start: int, count: int) -> Column:
    """A signed number (of 8 bytes) or an unsigned one (of fewer), from a position counted from 0."""
    # A base of -10 makes conv read 16 digits as a signed number.
    number = F.conv(F.hex(F.substring(data, start + 1, count)), 16, -10)
    return number.cast("int" if count == 1 else "bigint")


def _slice(data: Column, start: Column, count: Column) -> Column:
    """Bytes from a position counted from 0. Lengths of a damaged header may be more than Spark can count to."""
    return F.substring(data, (start + 1).try_cast("int"), count.try_cast("int"))


def _if(present: Column, bit: int, column: Column) -> Column:
    return F.when(present.bitwiseAND(bit) != 0, column)
