"""Makes the classes of wire commands from their annotations: immutable values with slots, equal by their fields.

They are what ``dataclass(frozen=True, slots=True)`` would make. That compiles six methods for each of some seventy
classes, 40 ms of CPU in every process that speaks the protocol; here one is compiled, when a class is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from pravega_common.wire.fields import FieldType


class Command:
    """Base of all commands. ``layout`` lists (attribute name, field type) in wire order."""

    __slots__ = ()
    type_code: ClassVar[int]
    layout: ClassVar[tuple[tuple[str, FieldType], ...]] = ()
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, *values: Any, **named: Any) -> None:
        """Stands in until the first value of a class is made: compiles the class's own, and calls it."""
        kind = type(self)
        made = _initializer(kind)
        kind.__init__ = made  # type: ignore[method-assign]
        made(self, *values, **named)

    def with_fields(self, **fields: Any) -> Self:
        """The command with these fields instead of its own."""
        return type(self)(**{name: getattr(self, name) for name, _ in self.layout} | fields)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name, _ in self.layout)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name, _ in self.layout)
        return f"{type(self).__qualname__}({fields})"

    def __rich_repr__(self) -> Iterator[tuple[str, Any]]:
        """For tracebacks in logs, which cut long values: a reply may hold megabytes."""
        return ((name, getattr(self, name)) for name, _ in self.layout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command) or type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __reduce__(self) -> tuple[type[Command], tuple[Any, ...]]:
        return type(self), self._values()


_C = TypeVar("_C", bound=Command)


def command_class(plain: type[_C], type_code: int, kinds: Mapping[str, Any]) -> type[_C]:
    """The class of a command. ``kinds``: what the names in the annotations stand for, the globals of their module."""
    annotations: dict[str, str] = vars(plain).get("__annotations__", {})
    fields = tuple(annotations)
    body = {name: value for name, value in vars(plain).items() if name not in (*fields, "__dict__", "__weakref__")}
    body |= {
        "__slots__": fields,
        "__match_args__": fields,
        "type_code": type_code,
        "layout": tuple((name, kinds[text].__metadata__[0]) for name, text in annotations.items()),
        "defaults": {name: vars(plain)[name] for name in fields if name in vars(plain)},
    }
    made: type[_C] = type(plain.__name__, plain.__bases__, body)
    return made


def _initializer(kind: type[Command]) -> Callable[..., None]:
    """The ``__init__`` of a class: a parameter for each field, which goes into its slot."""
    names = [name for name, _ in kind.layout]
    parameters = "".join(f", {name}=_default_{name}" if name in kind.defaults else f", {name}" for name in names)
    body = "\n".join(f"  _set_{name}(self, {name})" for name in names) or "  pass"
    scope: dict[str, Any] = {f"_set_{name}": getattr(kind, name).__set__ for name in names}
    scope |= {f"_default_{name}": value for name, value in kind.defaults.items()}
    exec(f"def __init__(self{parameters}):\n{body}", scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    return made
