"""Removed keys are remembered up to a number and to bytes, the last ones."""

from __future__ import annotations

import pytest

from segment_service.tables import removed_keys
from segment_service.tables.removed_keys import RemovedKeys


def test_the_last_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_keys, "removed_keys_max", 3)
    keys = RemovedKeys()
    for key in (b"a", b"bb", b"a", b"ccc", b"dddd"):
        keys.add(key)
    assert [key in keys for key in (b"a", b"bb", b"ccc", b"dddd")] == [False, True, True, True]
    assert (len(keys), keys.bytes_used) == (3, 9)
    keys.discard(b"ccc")
    keys.discard(b"absent")
    assert (len(keys), keys.bytes_used) == (2, 6)
    keys.clear()
    assert (len(keys), keys.bytes_used) == (0, 0)


def test_long_keys_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed_keys, "removed_bytes_max", 10)
    keys = RemovedKeys()
    for key in (b"a" * 4, b"b" * 4, b"c" * 4):
        keys.add(key)
    assert (len(keys), keys.bytes_used) == (2, 8)
    keys.add(b"d" * 11)
    assert (len(keys), keys.bytes_used) == (0, 0)
