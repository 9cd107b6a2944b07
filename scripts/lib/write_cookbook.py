"""Writes the example programs into the cookbook, each behind its mark ``<!-- examples/NAME -->``.

A test holds the document against the files.

usage: write_cookbook.py [DOCUMENT]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCUMENT: Final = Path("docs") / "cookbook.md"
BLOCK: Final = re.compile(r"(?P<mark><!-- (?P<name>examples/[\w.]+) -->\n)(?:\n```python\n.*?```\n)?", re.DOTALL)


def with_programs(document: str) -> str:
    """Returns the document with the present text of each program behind its mark."""

    def block(found: re.Match[str]) -> str:
        return f"{found['mark']}\n```python\n{(ROOT / found['name']).read_text()}```\n"

    return BLOCK.sub(block, document)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    path.write_text(with_programs(path.read_text()))
