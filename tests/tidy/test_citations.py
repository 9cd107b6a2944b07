"""Checks that every citation of a document resolves, in code, READMEs and documents.

A citation is ``docs/NAME.md`` and, for a page with numbered headings, one or more section numbers behind it. Other ways
of citing are refused. Links between Markdown files and paths that documents name must exist too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

FOLDERS: Final = (
    "conf",
    "controller_service",
    "docs",
    "examples",
    "jvm-shim",
    "pravega_common",
    "pravega_spark",
    "pravega_streams",
    "pyspark_pravega",
    "scripts",
    "segment_service",
    "tests",
)
SUFFIXES: Final = {"", ".cfg", ".java", ".md", ".proto", ".py", ".sh", ".toml"}
GENERATED: Final = re.compile(r"__pycache__|_pb2|/target/|/build/|\.hex$")
THIS: Final = Path(__file__).resolve()

_NUMBER: Final = r"(?:[A-C]\.\d+|\d+(?:\.\d+)*)"
CITATION: Final = re.compile(
    rf"(?<![\w/.])docs/(?P<page>[\w-]+\.md)(?P<sections>(?: {_NUMBER}(?:(?:, and|,| and) {_NUMBER})*)?)"
)
"""What follows a section number, such as the dot of a sentence, belongs to the text."""
OLD_FORMS: Final = (
    re.compile(r"wire reference", re.IGNORECASE),
    re.compile(r"controller reference", re.IGNORECASE),
    re.compile(r"\(reference \d|\breference section \d|\breference \d+\.\d"),
    re.compile(r"spark-connector\.md"),
    re.compile(r"(?<!docs/)\b(?:wire-protocol|controller-api|spark-source-and-sink)\.md \(?(?:section )?[A-C\d]"),
    re.compile(r"\bDESIGN\b|[Tt]he design's \""),
    re.compile(r"(?<!\[)[Ww]ire protocol(?: \d+\.\d|, (?:\"|section))"),
)
HEADING: Final = re.compile(rf"^#+ (?P<title>(?:(?P<number>{_NUMBER})\.? )?.*)$", re.MULTILINE)
LINK: Final = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
PATH: Final = re.compile(rf"`(?P<path>(?:{'|'.join(FOLDERS)})/[\w./-]*[\w/-])`")
MADE: Final = re.compile(r"^pravega_spark/jars/")
"""Paths that a build makes."""
MODULE: Final = re.compile(r"`(?P<module>\w+\.py)`")
SECTION_OF_THIS_PAGE: Final = re.compile(rf"\b[Ss]ections? (?P<numbers>{_NUMBER}(?:(?:,| and) {_NUMBER})*)")


@cache
def texts() -> dict[str, str]:
    """Reads all files that may cite, by their name in the repository."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    paths += [path for path in ROOT.iterdir() if path.suffix in (".md", ".cfg", ".toml")]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in paths
        if path.is_file() and path.suffix in SUFFIXES and not GENERATED.search(str(path)) and path.resolve() != THIS
    }


def documents() -> dict[str, str]:
    return {name: text for name, text in texts().items() if name.endswith(".md")}


def joined(text: str) -> str:
    """Drops line breaks, so that a citation may run over one."""
    return re.sub(r"\s*\n\s*(?:# |// |\* )?", " ", text)


@cache
def numbers_of(page: str) -> frozenset[str]:
    """Finds the numbers of a page's headings; the letter of ``## A.`` alone does not count."""
    return frozenset(found["number"] for found in HEADING.finditer(texts()[page]) if found["number"])


@cache
def anchors_of(page: str) -> frozenset[str]:
    """Finds what a link can point at in a page, by GitHub's rule."""
    titles = (found["title"] for found in HEADING.finditer(texts()[page]))
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def unresolved(page: str, numbers: str) -> Iterator[str]:
    for number in re.findall(_NUMBER, numbers):
        if number not in numbers_of(page):
            yield f"section {number} of {page}"


def test_every_citation_resolves() -> None:
    wrong = set()
    for name, text in texts().items():
        for found in CITATION.finditer(joined(text)):
            page = f"docs/{found['page']}"
            if page not in texts():
                wrong.add(f"{name}: {page}")
            else:
                wrong.update(f"{name}: {missing}" for missing in unresolved(page, found["sections"]))
    assert not wrong


def test_documents_are_cited_in_one_form() -> None:
    wrong = {
        f"{name}: {found[0]}"
        for name, text in texts().items()
        for form in OLD_FORMS
        for found in form.finditer(joined(text))
    }
    assert not wrong


def test_sections_named_within_a_page_are_there() -> None:
    wrong = {
        f"{name}: {missing}"
        for name, text in documents().items()
        if name.startswith("docs/") and numbers_of(name)
        for found in SECTION_OF_THIS_PAGE.finditer(joined(text))
        for missing in unresolved(name, found["numbers"])
    }
    assert not wrong


def test_links_between_documents_resolve() -> None:
    wrong = set()
    for name, text in documents().items():
        for found in LINK.finditer(text):
            target, _, anchor = found["target"].partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            path = (ROOT / name).parent / target if target else ROOT / name
            page = str(path.resolve().relative_to(ROOT)) if path.exists() else ""
            if not page or (anchor and anchor not in anchors_of(page)):
                wrong.add(f"{name}: {found['target']}")
    assert not wrong


def test_paths_that_documents_name_exist() -> None:
    wrong = {
        f"{name}: {found['path']}"
        for name, text in documents().items()
        for found in PATH.finditer(text)
        if not (ROOT / found["path"]).exists() and not MADE.search(found["path"])
    }
    assert not wrong


def test_modules_that_readmes_of_folders_name_exist() -> None:
    """By its name alone where the folder is clear: some file of the repository has it."""
    names = {name.rpartition("/")[2] for name in texts()} | {THIS.name}
    wrong = {
        f"{name}: {found['module']}"
        for name, text in documents().items()
        if "/" in name and name.endswith("README.md")
        for found in MODULE.finditer(text)
        if found["module"] not in names
    }
    assert not wrong
