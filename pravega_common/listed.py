"""Lists names in a sentence, up to a limit."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], named_max: int) -> str:
    """The first names, and how many there are beyond them: ``a, b and 3 more``."""
    more = f" and {len(names) - named_max} more" if len(names) > named_max else ""
    return ", ".join(names[:named_max]) + more
