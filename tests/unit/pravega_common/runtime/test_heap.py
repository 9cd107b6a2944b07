"""Memory that a process frees stays with it, and costs no fresh pages when it is taken again."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from typing import Final

import pytest

from pravega_common.runtime.heap import heap_use, keep_freed_memory

TAKEN_MIB: Final = 96
PAGES_OF_A_MIB: Final = 256

_TAKE_AND_FREE: Final = f"""
import resource, sys
from pravega_common.runtime.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def take_and_free():
    before = faults()
    buffers = [bytearray(piece_mib << 20) for _ in range({TAKEN_MIB} // piece_mib)]
    return faults() - before

kept_mib, piece_mib, of_any_size = map(int, sys.argv[1:])
print(keep_freed_memory(kept_mib << 20, of_any_size=bool(of_any_size)), take_and_free(), take_and_free())
"""
"""A process of its own: the settings are those of a process, and nobody else allocates in it."""


def run(kept_mib: int, piece_mib: int, *, of_any_size: bool) -> tuple[str, int, int]:
    given = [str(kept_mib), str(piece_mib), str(int(of_any_size))]
    output = subprocess.run(
        [sys.executable, "-c", _TAKE_AND_FREE, *given], check=True, capture_output=True, text=True
    ).stdout
    kept, first, second = output.split()
    return kept, int(first), int(second)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than that of GNU keeps what it wants")
@pytest.mark.parametrize(
    ("kept_mib", "piece_mib", "of_any_size", "is_kept"),
    [
        (2 * TAKEN_MIB, 1, False, True),
        (2 * TAKEN_MIB, 1, True, True),
        (2, 1, False, False),
        (2 * TAKEN_MIB, 48, False, False),
        (2 * TAKEN_MIB, 48, True, True),
        (2, 48, True, False),
    ],
)
def test_what_was_freed_is_taken_again_without_fresh_pages(
    kept_mib: int, piece_mib: int, of_any_size: bool, is_kept: bool
) -> None:
    fresh = TAKEN_MIB * PAGES_OF_A_MIB
    kept, first, second = run(kept_mib, piece_mib, of_any_size=of_any_size)
    assert kept == "True"
    assert first > 0.9 * fresh
    assert second < 0.1 * fresh if is_kept else second > 0.5 * fresh


def test_a_c_library_without_such_settings_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory(1 << 20)


def test_a_buffer_counts_as_used_until_it_is_freed() -> None:
    before = heap_use()
    if before is None:
        pytest.skip("the C library does not tell what its heap holds")
    buffer = bytearray(TAKEN_MIB << 20)
    taken = heap_use()
    del buffer
    freed = heap_use()
    assert taken is not None and freed is not None
    assert taken.used - before.used >= TAKEN_MIB << 20
    assert freed.used - before.used < TAKEN_MIB << 19
