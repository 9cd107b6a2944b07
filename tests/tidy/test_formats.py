"""Checks that every format that outlives its program is listed with its version and its golden test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.support.repository import ROOT

PACKAGES: Final = ("controller_service", "pravega_common", "pravega_spark", "pravega_streams", "segment_service")
NAME: Final = re.compile(r"_?(?:[a-z_]*magic(?:_line)?|(?:[a-z]+_)?version|_?format|header_format|[a-z]+_format)", re.I)
"""How the code names the mark and the version of a format."""
NO_FORMATS: Final = {
    "pravega_common/services/cluster/cpo.py": "the version of an assignment that was never made",
    "pravega_common/wire/versions.py": "the wire protocol",
    "segment_service/file_log/scan.py": "the magic of a plog's entry, which plog/entry.py has",
}
"""Modules whose numbers of that name are of no format on a disk, and why."""
ROW: Final = re.compile(r"^\| .+? \| (?P<mark>.+?) \| .+? \| `(?P<module>\S+\.py)` \| `(?P<test>\S+\.py)` \| .+ \|$")


def rows() -> list[re.Match[str]]:
    lines = (ROOT / "docs/formats.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("| ")][1:]
    found = [ROW.match(line) for line in table]
    assert all(found), [line for line, match in zip(table, found, strict=True) if match is None]
    return [match for match in found if match is not None]


def marks() -> Iterator[tuple[str, str, bytes | int]]:
    """Module, name and value of each constant that marks a format."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if "/proto/" in name:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                yield from ((name, constant, value) for constant, value in _assigned(node))


def _assigned(node: ast.AST) -> Iterator[tuple[str, bytes | int]]:
    """The constants that a statement of a module or a class gives a mark's name."""
    if not isinstance(node, ast.Module | ast.ClassDef):
        return
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        value = getattr(statement, "value", None)
        for target in targets:
            if not isinstance(target, ast.Name) or not NAME.fullmatch(target.id) or not isinstance(value, ast.Constant):
                continue
            if isinstance(value.value, bytes | int) and not isinstance(value.value, bool):
                yield target.id, value.value


def _is_shown(value: bytes | int, text: str) -> bool:
    if isinstance(value, bytes):
        return f"`{value.decode()}`" in text
    return re.search(rf"(?<![\w]){value}(?![\w])|\b0x{value:X}\b", text) is not None


def test_every_mark_in_the_code_is_in_the_table() -> None:
    listed: dict[str, str] = {}
    for row in rows():
        listed[row["module"]] = f"{listed.get(row['module'], '')} {row['mark']}"
    wrong = []
    found = set()
    for module, name, value in marks():
        if module in NO_FORMATS:
            continue
        found.add(module)
        if not _is_shown(value, listed.get(module, "")):
            wrong.append(f"{module}: docs/formats.md does not show {name} = {value!r}")
    assert not wrong
    assert len(found) > 15, "the search finds the marks"


def test_modules_and_tests_exist_and_belong_together() -> None:
    for row in rows():
        module, test = row["module"], ROOT / row["test"]
        assert (ROOT / module).exists() and test.exists(), row[0]
        dotted = module.removesuffix(".py").replace("/", ".")
        package, _, last = dotted.rpartition(".")
        text = test.read_text()
        assert dotted in text or f"from {package} import {last}" in text, f"{test} does not use {dotted}"


def test_what_is_no_format_is_still_there() -> None:
    found = {module for module, _, _ in marks()}
    assert set(NO_FORMATS) <= found, sorted(set(NO_FORMATS) - found)
