"""Writes the connector's options into the document of the Spark source and sink.

A test holds the document against the code.

usage: write_options.py [DOCUMENT]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from pravega_spark.options.markdown import markdown_table

DOCUMENT: Final = Path("docs") / "spark-source-and-sink.md"
START, END = "<!-- options: ", "<!-- end of options -->"


def with_options(document: str) -> str:
    """Returns the document with the present table between its two marks."""
    before, _, rest = document.partition(START)
    mark, _, rest = rest.partition("\n")
    _, _, after = rest.partition(END)
    return f"{before}{START}{mark}\n\n{markdown_table()}\n\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    path.write_text(with_options(path.read_text()))
