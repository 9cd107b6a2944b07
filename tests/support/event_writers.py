"""Names the attributes of writers for tests of attribute indexes, and makes their limits small."""

from __future__ import annotations

import pytest

from segment_service.contracts.attributes import AttributeId
from segment_service.metadata import held_attributes


def writer(number: int) -> AttributeId:
    return AttributeId(b"writer-%09d" % number)


def hold_few(monkeypatch: pytest.MonkeyPatch, held_max: int, **limits: int) -> None:
    """Have writers leave the memory of a segment beyond ``held_max``; ``limits``: others of ``held_attributes``."""
    for name, value in {"held_max": held_max, **limits}.items():
        monkeypatch.setattr(held_attributes, name, value)
