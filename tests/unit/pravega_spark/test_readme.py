"""The README's table of options is what the code says."""

from __future__ import annotations

from pravega_spark.options.definitions import markdown_table
from tests.support.repository import ROOT

README = ROOT / "README.md"


def test_the_readme_lists_every_option_as_it_is() -> None:
    assert markdown_table().strip() in README.read_text(), "run .venv/bin/python scripts/lib/write_options.py"
