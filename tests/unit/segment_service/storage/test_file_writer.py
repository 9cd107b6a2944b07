"""Files of every length are written byte for byte, directly and through the page cache."""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from segment_service.storage import file_writer
from segment_service.storage.file_writer import FileWriter, block_bytes, direct_bytes_min, staging_bytes

LENGTHS = [
    0,
    1,
    direct_bytes_min - 1,
    direct_bytes_min,
    direct_bytes_min + 1,
    staging_bytes - 1,
    staging_bytes,
    staging_bytes + 1,
    2 * staging_bytes + block_bytes - 1,
]


def pieces(length: int, cuts: int) -> list[memoryview]:
    chosen = random.Random(length)
    data = memoryview(chosen.randbytes(length))
    borders = [0, *sorted(chosen.randrange(length + 1) for _ in range(cuts)), length]
    return [data[first:last] for first, last in itertools.pairwise(borders)]


@pytest.mark.parametrize("cuts", [0, 7])
@pytest.mark.parametrize("length", LENGTHS)
def test_every_length(tmp_path: Path, length: int, cuts: int) -> None:
    data = pieces(length, cuts)
    FileWriter().write_new(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == b"".join(data)


def test_a_name_is_not_written_twice(tmp_path: Path) -> None:
    FileWriter().write_new(tmp_path / "file", [b"first"])
    with pytest.raises(FileExistsError):
        FileWriter().write_new(tmp_path / "file", [bytes(direct_bytes_min)])
    assert (tmp_path / "file").read_bytes() == b"first"


Call = Callable[..., int]


def refusing(real: Call, refuses: Callable[..., bool], error: int) -> Call:
    def call(*arguments: object) -> int:
        if refuses(*arguments):
            raise OSError(error, os.strerror(error))
        return real(*arguments)

    return call


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no direct writes")
@pytest.mark.parametrize("when", ["open", "write"])
def test_a_file_system_without_direct_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """As tmpfs (when the file is opened) and some network file systems (when it is written)."""
    refuses = {"open": lambda path, flags, *mode: bool(flags & os.O_DIRECT), "write": lambda *_: True}[when]
    monkeypatch.setattr(os, when, refusing(getattr(os, when), refuses, errno.EINVAL))
    writer = FileWriter()
    data = pieces(staging_bytes + 5, 3)
    tried = [writer.is_direct]
    writer.write_new(tmp_path / "file", data)
    tried.append(writer.is_direct)
    assert tried == [True, False]
    assert (tmp_path / "file").read_bytes() == b"".join(data)


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no direct writes")
def test_a_full_disk_is_not_taken_for_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", refusing(os.write, lambda *_: True, errno.ENOSPC))
    writer = FileWriter()
    with pytest.raises(OSError, match="No space left"):
        writer.write_new(tmp_path / "file", [bytes(direct_bytes_min)])
    assert writer.is_direct


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system has no direct writes")
def test_a_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda descriptor, data: block_bytes)
    with pytest.raises(OSError, match=f"{block_bytes} of {direct_bytes_min} bytes"):
        FileWriter().write_new(tmp_path / "file", [bytes(direct_bytes_min)])


def test_the_constant_of_the_system_is_used() -> None:
    assert getattr(os, "O_DIRECT", 0) == file_writer._DIRECT
