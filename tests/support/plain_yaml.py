"""Reads the plain YAML of the deployment files: nested maps, lists, scalars on one line, and literal blocks.

Everything else that YAML has (anchors, folded text, flow maps, tabs) is refused, so that a file in this subset means
the same to every reader.
"""

from __future__ import annotations

import re
from typing import Any

_KEY = re.compile(r"([A-Za-z0-9_./$-]+|'[^']*'):(?: (.*))?$")
_Line = tuple[int, str]


def read_yaml(text: str) -> list[Any]:
    """The documents of a file; ``ValueError`` with the line for what is not in the subset."""
    return [_Reader(part).document() for part in re.split(r"(?m)^---\n", text) if _lines(part)]


def _lines(text: str) -> list[_Line]:
    if "\t" in text:
        raise ValueError("a tab")
    return [
        (len(line) - len(line.lstrip()), line.strip())
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = _lines(text)
        self._next = 0

    def document(self) -> Any:
        value = self._block(0)
        if self._next != len(self._lines):
            raise ValueError(f"not at its place: {self._lines[self._next][1]}")
        return value

    def _peek(self) -> _Line:
        return self._lines[self._next] if self._next < len(self._lines) else (-1, "")

    def _block(self, indent: int) -> Any:
        return self._list(indent) if self._peek()[1].startswith("- ") else self._map(indent)

    def _list(self, indent: int) -> list[Any]:
        found = []
        while self._peek()[0] == indent and self._peek()[1].startswith("- "):
            rest = self._peek()[1][2:]
            if _KEY.match(rest):
                self._lines[self._next] = (indent + 2, rest)
                found.append(self._map(indent + 2))
            else:
                self._next += 1
                found.append(_scalar(rest))
        return found

    def _map(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._peek()[0] == indent and not self._peek()[1].startswith("- "):
            text = self._peek()[1]
            match = _KEY.match(text)
            if match is None:
                raise ValueError(f"no key and value: {text}")
            key, value = match[1].strip("'"), match[2]
            if key in found:
                raise ValueError(f"twice: {key}")
            self._next += 1
            found[key] = self._value(indent, value)
        return found

    def _value(self, indent: int, value: str | None) -> Any:
        if value == "|":
            taken = []
            while self._peek()[0] > indent:
                taken.append(self._peek()[1])
                self._next += 1
            return "\n".join(taken)
        if value is not None:
            return _scalar(value)
        deeper, text = self._peek()
        if deeper > indent or (deeper == indent and text.startswith("- ")):
            return self._block(deeper)
        return None


def _scalar(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return [_scalar(part.strip()) for part in inner.split(",")] if inner else []
    if text == "{}":
        return {}
    if text[0] in "'\"":
        if len(text) < 2 or text[-1] != text[0] or text[0] in text[1:-1]:
            raise ValueError(f"quotes: {text}")
        return text[1:-1]
    if text[0] in "{&*!>%@`|" or ": " in text or " #" in text:
        raise ValueError(f"must be quoted: {text}")
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)
