"""Defines the entries that grant permissions on resources, in Pravega's form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_common.resources import Permission

entries_max: Final = 1_000
pattern_chars_max: Final = 1_024
resource_chars_max: Final = 4_096
"""Several times what the longest names make. A longer one is nothing's, and each entry would be held against it."""


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """A pattern of resources, in which ``*`` stands for any text, and what is permitted on them."""

    pattern: str
    permission: Permission

    def __str__(self) -> str:
        return f"{self.pattern},{self.permission.name}"


class AccessEntries:
    """The entries of one principal. As in Pravega, the first that fits a resource decides; without one nothing is
    permitted."""

    def __init__(self, entries: Sequence[AccessEntry]) -> None:
        self._entries = tuple(entries)
        self._patterns = tuple(
            (re.compile(_expression_of(entry.pattern), re.DOTALL), entry.permission) for entry in entries
        )

    @classmethod
    def parse(cls, text: str) -> AccessEntries:
        """``prn::/scope:a/stream:b,READ_UPDATE;prn::*,READ``; ``ConfigurationError`` for another form."""
        parts = [part.strip() for part in text.split(";") if part.strip()]
        if len(parts) > entries_max:
            raise ConfigurationError(f"{len(parts)} access entries; the limit is {entries_max}")
        return cls([_entry(part) for part in parts])

    def permission(self, resource: str) -> Permission:
        if len(resource) > resource_chars_max:
            return Permission.NONE
        for pattern, permission in self._patterns:
            if pattern.fullmatch(resource):
                return permission
        return Permission.NONE

    def permits(self, resource: str, needed: Permission) -> bool:
        return self.permission(resource) >= needed

    def __len__(self) -> int:
        return len(self._entries)

    def __str__(self) -> str:
        return ";".join(map(str, self._entries))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessEntries) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(self._entries)


def _expression_of(pattern: str) -> str:
    """The regular expression of a pattern. What stands between two ``*`` is looked for once, where it comes first:
    callers choose the names of resources, and all ways to find it elsewhere would be tried, for hours, before a no."""
    first, *others = map(re.escape, pattern.split("*"))
    if not others:
        return first
    return first + "".join(f"(?>.*?{text})" for text in others[:-1]) + ".*" + others[-1]


def _entry(text: str) -> AccessEntry:
    pattern, _, name = (part.strip() for part in text.partition(","))
    if not pattern.startswith("prn::") or len(pattern) > pattern_chars_max or name not in Permission.__members__:
        raise ConfigurationError(
            f"access entry {text[:100]!r} is not <resource>,<permission>: a resource such as prn::/scope:a/stream:b, "
            f"and one of "
            f"{', '.join(Permission.__members__)}"
        )
    return AccessEntry(pattern, Permission[name])
