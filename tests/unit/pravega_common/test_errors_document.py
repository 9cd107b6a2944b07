"""Holds the tree of ``docs/errors.md`` against that of the code."""

from __future__ import annotations

import re
import textwrap

import pravega_common.errors
from tests.support.repository import ROOT


def tree_of(docstring: str) -> str:
    found = re.search(r"::\n\n((?: +.+\n)+)", f"{docstring}\n")
    assert found is not None
    return textwrap.dedent(found[1]).rstrip()


def test_the_document_draws_the_tree_of_the_code() -> None:
    tree = tree_of(pravega_common.errors.__doc__ or "")
    assert f"```\n{tree}\n```" in (ROOT / "docs" / "errors.md").read_text(), "copy it from pravega_common/errors.py"
