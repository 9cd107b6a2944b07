"""Serializes records as versioned JSON: small, readable in a dump, and tolerant of fields added later.

A record is a frozen dataclass whose fields are ``int``, ``float``, ``str``, ``bool``, enums, dataclasses, ``X | None``,
``tuple[X, ...]`` and ``dict[int | str, X]``. Unknown fields are ignored, missing ones take their default, so a newer
controller's records can be read while instances are replaced one by one. Floats come back exactly. A class that an
older version would misread has ``record_version: ClassVar[int]``, which older versions refuse; if it would misread only
some of its records, their ``written_version`` tells which.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pravega_common.errors import DataCorruption

format_version: Final = 1
_VERSION_FIELD: Final = "_v"

R = TypeVar("R")


def encode(record: Any) -> bytes:
    """The record as JSON bytes, fields in declaration order."""
    version = getattr(record, "written_version", _version_of(type(record)))
    fields = {_VERSION_FIELD: version, **_to_json(record)}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode(cls: type[R], data: bytes) -> R:
    """Raises ``DataCorruption`` for bytes that are not a record of this class, or of a version from the future."""
    try:
        fields = json.loads(data)
        if fields.pop(_VERSION_FIELD) > _version_of(cls):
            raise DataCorruption(
                f"{cls.__name__}: written by a newer controller than this one, which reads up to version "
                f"{_version_of(cls)}: replace it by one of the same version"
            )
        return typing.cast(R, _reader(cls)(fields))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorruption(f"{cls.__name__}: not a record: {data[:80]!r} ({error})") from error


def _version_of(cls: type) -> int:
    return getattr(cls, "record_version", format_version)


def _to_json(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(kind):
        return {name: _to_json(getattr(value, name)) for name in _field_names(kind)}
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _to_json(item) for key, item in value.items()}
    return value


_PLAIN: Final = frozenset((int, str, float, bool, types.NoneType))


@functools.cache
def _field_names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _reader(cls: Any) -> Callable[[Any], Any]:
    """A function from parsed JSON to a value of the type, built once per type."""
    reader = _readers.get(cls)
    if reader is None:
        reader = _readers[cls] = _make_reader(cls)
    return reader


_readers: Final[dict[Any, Callable[[Any], Any]]] = {}


def _make_reader(cls: Any) -> Callable[[Any], Any]:
    origin = typing.get_origin(cls)
    arguments = typing.get_args(cls)
    if origin is tuple:
        item = _reader(arguments[0])
        return lambda value: tuple(item(element) for element in value)
    if origin is dict:
        key, item = arguments[0], _reader(arguments[1])
        return lambda value: {key(name): item(element) for name, element in value.items()}
    if origin in (typing.Union, types.UnionType):
        inner = _reader(next(argument for argument in arguments if argument is not types.NoneType))
        return lambda value: None if value is None else inner(value)
    if dataclasses.is_dataclass(cls):
        return _dataclass_reader(typing.cast(type, cls))
    return typing.cast(Callable[[Any], Any], cls)


def _dataclass_reader(cls: type) -> Callable[[Any], Any]:
    readers: dict[str, Callable[[Any], Any]] = {}

    def read(value: dict[str, Any]) -> Any:
        if not readers:
            hints = typing.get_type_hints(cls)
            readers.update({field.name: _reader(hints[field.name]) for field in dataclasses.fields(cls)})
        if value.keys() == readers.keys():
            # Nearly all records: an epoch has thousands of them, and arguments by position take half the time.
            return cls(*[read_field(value[name]) for name, read_field in readers.items()])
        return cls(**{name: readers[name](item) for name, item in value.items() if name in readers})

    return read
