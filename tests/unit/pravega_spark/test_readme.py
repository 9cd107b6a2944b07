"""Holds the documents for users against the code: the table of options, and the README's example."""

from __future__ import annotations

import ast
import re
import runpy

from pravega_spark.options.markdown import markdown_table
from tests.support.repository import ROOT

README = ROOT / "README.md"
WRITER = runpy.run_path(str(ROOT / "scripts" / "lib" / "write_options.py"))
DOCUMENT = ROOT / WRITER["DOCUMENT"]


def test_the_document_lists_every_option_as_it_is() -> None:
    assert markdown_table().strip() in DOCUMENT.read_text(), "run .venv/bin/python scripts/lib/write_options.py"


def test_writing_the_options_again_changes_nothing() -> None:
    document = DOCUMENT.read_text()
    assert WRITER["with_options"](document) == document


def test_the_examples_of_the_readme_are_python() -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert examples
    for example in examples:
        ast.parse(example)
