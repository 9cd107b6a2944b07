"""Defines the record of all scopes that have limits of bytes a second, which controllers write and stores read.

It is one constant of the control plane oracle: a store learns all limits by one read, whatever the number of scopes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pravega_common.errors import DataCorruption

BYTE_LIMITS_KEY: Final = "scope-byte-limits"
"""Constant: the limits of all scopes that have some, as JSON."""
limited_scopes_max: Final = 100
"""Scopes that may have limits of bytes a second. With the longest names they take two thirds of a constant."""
_format_version: Final = 1


@dataclass(frozen=True, slots=True)
class ByteLimits:
    """The bytes a second of one scope, in all stores together; None for no limit."""

    bytes_in: int | None = None
    bytes_out: int | None = None


@dataclass(frozen=True, slots=True)
class AllByteLimits:
    """The limits of all scopes that have some."""

    number: int = 0
    """Raised by every change, so that no two texts of the record are equal."""
    scopes: Mapping[str, ByteLimits] = field(default_factory=dict)

    def encode(self) -> str:
        """Returns the text of the record."""
        scopes = {scope: [one.bytes_in, one.bytes_out] for scope, one in sorted(self.scopes.items())}
        fields = {"v": _format_version, "number": self.number, "scopes": scopes}
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def decode(cls, text: str | None) -> AllByteLimits:
        """Reads the record, no limits without one; ``DataCorruption`` for what is not one, or of a later version."""
        if text is None:
            return cls()
        try:
            fields = json.loads(text)
            if fields["v"] > _format_version:
                raise DataCorruption(f"byte limits of version {fields['v']}: use stores and controllers of one version")
            scopes = {str(scope): ByteLimits(*map(_limit, one[:2])) for scope, one in fields["scopes"].items()}
            return cls(int(fields["number"]), scopes)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataCorruption(f"the record of byte limits is not one: {text[:80]!r} ({error})") from error


def _limit(value: object) -> int | None:
    if value is None or (isinstance(value, int) and value > 0):
        return value
    raise ValueError(f"{value!r} is no limit")
