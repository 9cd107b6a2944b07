"""Checks the prose of docstrings, comments, messages and documents against the rules of CONTRIBUTING.

A first line is subject, verb, the field's noun. The patterns below are those that made earlier text hard to read.
"""

from __future__ import annotations

import ast
import itertools
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.test_tidy import ROOT, relative, sources, tree_of

RIDDLE = re.compile(
    r"(Of|What|Whoever|Who|Whose|Whatever|Where|When|Which|How|Everything|Anything|Nothing|All that|Several|So|Not)\b"
)
FRAGMENT = re.compile(r"Of [a-z]")
UNCLEAR = re.compile(
    r"\b(twins?|whoever|anew|for ever|goes? before|(?:is|are) none|so many|so much|(?:is|are) told|commit sets?)\b"
)
ID = re.compile(r"^[\w.]*(id|identifier|item)$")
"""An expression that is a segment's id."""
DOCUMENTS = ("*.md", "docs/*.md", "conf/*.md", "scripts/*.md")


def documents() -> Iterator[Path]:
    for pattern in DOCUMENTS:
        yield from ROOT.glob(pattern)
    yield from {path.parent / "README.md" for path in sources() if (path.parent / "README.md").exists()}


def first_lines(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text.partition("\n")[0]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that hold words, and comments."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value.strip()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def test_the_patterns_find_what_they_should() -> None:
    assert RIDDLE.match("What a client sees.") and not RIDDLE.match("Serves clients.")
    assert UNCLEAR.search("the owner is told") and not UNCLEAR.search("the owner is notified")


def test_first_lines_say_subject_verb_and_noun() -> None:
    wrong = {
        f"{relative(path)}:{line}: {text}"
        for path in sources()
        for line, text in first_lines(path)
        if RIDDLE.match(text)
    }
    assert not wrong


def test_no_text_is_a_fragment_or_a_riddle() -> None:
    wrong = {
        f"{relative(path)}:{line}: {text[:80]}"
        for path in sources()
        for line, text in texts(path)
        if FRAGMENT.match(text) or UNCLEAR.search(text)
    }
    assert not wrong


def test_documents_use_no_unclear_words() -> None:
    wrong = {
        f"{relative(path)}:{number}: {line[:80]}"
        for path in documents()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNCLEAR.search(line)
    }
    assert not wrong


def test_messages_name_segments_and_show_no_ids() -> None:
    """The name ``4.#epoch.2`` is what commands take and tables show (``short_segment_name``)."""
    wrong = [
        f"{relative(path)}:{node.lineno}"
        for path in sources()
        if relative(path).startswith(("pravega_spark/", "pravega_streams/"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.JoinedStr)
        for before, value in itertools.pairwise(node.values)
        if isinstance(before, ast.Constant) and str(before.value).endswith("segment ")
        if isinstance(value, ast.FormattedValue) and ID.search(ast.unparse(value.value))
    ]
    assert not wrong
