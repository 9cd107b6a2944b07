"""Writes the demo's input: every line of the Python standard library's own sources."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

lines_per_input_file_max: Final = 10_000
input_files_min: Final = 12
"""Input files at least: the query takes two at a time, and the driver is killed in the middle of a later batch."""
line_chars_max: Final = 100_000


@dataclass
class SourceLines:
    """The input as it was written: the bytes of each source file by key, and the count of lines."""

    files: dict[str, bytes] = field(default_factory=dict)
    lines: int = 0

    @property
    def bytes(self) -> int:
        return sum(map(len, self.files.values()))


def standard_library_files() -> list[Path]:
    return sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))


def write_input(folder: Path, lines_wanted: int) -> SourceLines:
    """Writes JSON files with (file, line, text), whole source files in each, at least ``lines_wanted`` lines together.

    A library with fewer lines is written again under other keys.
    """
    folder.mkdir(parents=True)
    written = SourceLines()
    lines_per_file = min(lines_per_input_file_max, lines_wanted // input_files_min)
    pending: list[str] = []
    for key, content in _repeated_sources():
        written.files[key] = content
        texts = content.decode().splitlines(keepends=True)
        pending += [json.dumps({"file": key, "line": number, "text": text}) for number, text in enumerate(texts)]
        written.lines += len(texts)
        if len(pending) >= lines_per_file or written.lines >= lines_wanted:
            part = folder / f"part-{written.lines:09d}.json"
            part.write_text("\n".join(pending) + "\n")
            pending = []
        if written.lines >= lines_wanted:
            return written
    raise AssertionError("the standard library has no sources")


def _repeated_sources() -> Iterator[tuple[str, bytes]]:
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in standard_library_files() if "site-packages" not in path.parts]
    turn = 0
    while paths:
        for path in paths:
            content = path.read_bytes()
            if _is_plain(content):
                yield f"{turn}/{path.relative_to(root)}" if turn else str(path.relative_to(root)), content
        turn += 1


def _is_plain(content: bytes) -> bool:
    """Tells whether JSON can carry a file: some test data of the library is broken on purpose and not UTF-8."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return bool(text) and max(map(len, text.splitlines())) <= line_chars_max
