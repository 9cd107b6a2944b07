"""Memory that a process frees stays with it, and costs no fresh pages when it is taken again."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from typing import Final

import pytest

from pravega_common.runtime.heap import keep_freed_memory

BUFFERS: Final = 48
PAGES_OF_A_BUFFER: Final = 256

_TAKE_AND_FREE: Final = f"""
import resource, sys
from pravega_common.runtime.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def take_and_free():
    before = faults()
    buffers = [bytearray(1 << 20) for _ in range({BUFFERS})]
    return faults() - before

print(keep_freed_memory(int(sys.argv[1])), take_and_free(), take_and_free())
"""
"""A process of its own: the settings are those of a process, and nobody else allocates in it."""


def run(kept_bytes_max: int) -> tuple[str, int, int]:
    output = subprocess.run(
        [sys.executable, "-c", _TAKE_AND_FREE, str(kept_bytes_max)], check=True, capture_output=True, text=True
    ).stdout
    kept, first, second = output.split()
    return kept, int(first), int(second)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than that of GNU keeps what it wants")
def test_what_was_freed_is_taken_again_without_fresh_pages() -> None:
    fresh = BUFFERS * PAGES_OF_A_BUFFER * 9 // 10
    kept, first, second = run(BUFFERS << 21)
    assert kept == "True"
    assert first > fresh
    assert second < fresh / 10
    _, first, second = run(1 << 20)  # too little for all of them
    assert first > fresh and second > fresh / 2


def test_a_c_library_without_such_settings_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory(1 << 20)
