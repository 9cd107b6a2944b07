"""Takes plain values of the command line as they stand, in place of Typer's own conversion.

Typer (from 0.29 on) converts every value with Pydantic, which takes longer to import than most questions to a
controller take. A word for a ``str``, a number in its range and a default need none of it. Everything else goes to
Typer: choices, paths, and whatever is wrong. What Typer says of a wrong number names neither the number nor its whole
range, and of a wrong choice with a prefix of Pydantic's, so these two are said here.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import typer
from typer.models import ParameterInfo

_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_DECIMAL_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
NOT_PLAIN: Final = object()
"""Stands for a value that Typer has to convert."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a parameter: its annotation without ``None``, and the range of numbers."""

    annotation: Any
    least: float | None = None
    most: float | None = None

    def plain(self, value: Any) -> Any:
        """Returns a value as the command gets it, or ``NOT_PLAIN``."""
        if self.annotation is bool:
            return value if isinstance(value, bool) else NOT_PLAIN
        if self.annotation is str:
            return value if isinstance(value, str) else NOT_PLAIN
        if self.annotation == list[str]:
            return value if _are_texts(value) else NOT_PLAIN
        if self.annotation is int and isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            value = int(value)
        if self.annotation is float and _DECIMAL_NUMBER.fullmatch(str(value)):
            value = float(value)
        is_number = self.annotation in (int, float) and type(value) is self.annotation
        return value if is_number and self._has_in_range(value) else NOT_PLAIN

    def refusal(self, value: Any) -> str | None:
        """Names a value that Typer does not take, and what it takes; None where its own message is as good."""
        if isinstance(self.annotation, type) and issubclass(self.annotation, enum.Enum):
            return f"'{value}' is not one of {', '.join(repr(item.value) for item in self.annotation)}."
        if self.annotation not in (int, float):
            return None
        number = "whole number" if self.annotation is int else "number"
        if self.most is not None:
            return f"'{value}' is no {number} in {self.least or 0}..{self.most}."
        return f"'{value}' is no {number}{'' if self.least is None else f' of at least {self.least}'}."

    def _has_in_range(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


def kind_of(hint: Any) -> Kind | None:
    """Returns the kind of a parameter from its annotation, None where it has a conversion of its own."""
    info: ParameterInfo = typer.models.OptionInfo()
    if get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        info = next((item for item in more if isinstance(item, ParameterInfo)), info)
    if info.parser is not None or info.clamp:
        return None
    without_none = [item for item in get_args(hint) if item is not NoneType]
    annotation = without_none[0] if NoneType in get_args(hint) and len(without_none) == 1 else hint
    return Kind(annotation, info.min, info.max)


def take_plain_values(command: Any, parent: typer.Context | None = None) -> None:
    """Gives the parameters of a command, and of the commands in a group, the short way for plain values."""
    context = typer.Context(command, parent=parent, **command.context_settings)
    for inner in getattr(command, "commands", {}).values():
        take_plain_values(inner, context)
    hints = get_type_hints(command.callback, include_extras=True) if command.callback else {}
    for parameter in command.get_params(context):
        kind = kind_of(hints.get(parameter.name))
        if kind is not None:
            _take(parameter, kind)


def _take(parameter: Any, kind: Kind) -> None:
    convert, callback = parameter.process_value, parameter.callback
    missing = () if getattr(parameter, "multiple", False) or parameter.nargs != 1 else None

    def converted(context: Any, value: Any) -> Any:
        try:
            return convert(context, value)
        except typer.BadParameter as error:
            refusal = kind.refusal(value)
            if refusal is None:
                raise
            raise typer.BadParameter(refusal, ctx=context, param=parameter) from error

    def process_value(context: Any, value: Any) -> Any:
        plain = missing if value is None and not parameter.required else kind.plain(value)
        if plain is NOT_PLAIN:
            return converted(context, value)
        return plain if callback is None else callback(context, parameter, plain)

    parameter.process_value = process_value


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
