"""Marks the cases of a matrix that run with ``--long`` only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def long_but_for(always: Collection[str], cases: Mapping[str, Case]) -> list[Any]:
    """Returns parameters with the names of the cases as ids; those that ``always`` does not name are long.

    ``ValueError`` for a name that is no case: it would run no more.
    """
    unknown = set(always) - cases.keys()
    if unknown:
        raise ValueError(f"no such cases: {', '.join(sorted(unknown))}")
    return [
        pytest.param(case, id=name, marks=() if name in always else pytest.mark.long) for name, case in cases.items()
    ]
