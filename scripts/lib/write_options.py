"""Writes the connector's options into the README; a test holds the README against the code.

usage: write_options.py [README]
"""

from __future__ import annotations

import sys
from pathlib import Path

from pravega_spark.options.definitions import markdown_table

START, END = "<!-- options: ", "<!-- end of options -->"


def with_options(readme: str) -> str:
    """The README with the table between its two marks replaced by the present one."""
    before, _, rest = readme.partition(START)
    mark, _, rest = rest.partition("\n")
    _, _, after = rest.partition(END)
    return f"{before}{START}{mark}\n\n{markdown_table()}\n\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "README.md")
    path.write_text(with_options(path.read_text()))
