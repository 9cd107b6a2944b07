"""Compares the files that came back from the stream with the input."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from demo.source_lines import SourceLines


@dataclass
class Comparison:
    """The result: counts of lines; ``files_equal`` of ``files`` came back byte for byte."""

    events: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    phantom: int = 0
    files: int = 0
    files_equal: int = 0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        wrong = self.lost + self.duplicated + self.out_of_order + self.phantom
        return wrong == 0 and self.files == self.files_equal


def compare(events_folder: Path, source: SourceLines) -> Comparison:
    """Puts the files together again and compares them, from Parquet with ``event``, ``segment_id`` and ``offset``."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(events_folder).sort_by([("segment_id", "ascending"), ("offset", "ascending")])
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for event in table.column("event").to_pylist():
        line = json.loads(event)
        found[line["file"]].append((line["line"], line.get("text", "")))
    result = Comparison(events=table.num_rows, files=len(source.files))
    for key, content in source.files.items():
        _compare_file(result, content.decode().splitlines(keepends=True), found.pop(key, []))
    result.phantom = sum(map(len, found.values()))
    return result


def _compare_file(result: Comparison, expected: list[str], found: list[tuple[int, str]]) -> None:
    numbers = [number for number, _ in found]
    distinct = set(numbers)
    result.lost += len(set(range(len(expected))) - distinct)
    result.phantom += len(distinct - set(range(len(expected))))
    result.duplicated += len(numbers) - len(distinct)
    result.out_of_order += sum(1 for before, after in itertools.pairwise(numbers) if after < before)
    result.files_equal += "".join(text for _, text in found).encode() == "".join(expected).encode()
