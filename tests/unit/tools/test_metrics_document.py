"""Holds the document of the metrics against what the services register, both ways."""

from __future__ import annotations

import re
import runpy

from tests.support.repository import ROOT

WRITER = runpy.run_path(str(ROOT / "scripts" / "lib" / "write_metrics.py"))
DOCUMENT = ROOT / WRITER["DOCUMENT"]


def test_the_document_lists_every_metric_as_it_is() -> None:
    document = DOCUMENT.read_text()
    assert WRITER["with_metrics"](document) == document, "run .venv/bin/python scripts/lib/write_metrics.py"


def test_every_metric_has_a_sentence_and_a_name_of_its_own() -> None:
    rows = [*WRITER["store_rows"](), *WRITER["controller_rows"]()]
    names = [name for name, *_ in rows]
    assert len(names) == len(set(names)) > 50
    assert [name for name, _, _, text in rows if not re.fullmatch(r"(?:[A-Z0-9]|gRPC)[^|]{6,}[^.|]", text)] == []
    prefix = re.compile(r"pravega_(store|container|controller)_[a-z0-9_]+")
    assert [name for name in names if not prefix.fullmatch(name)] == []


def test_documents_name_no_other_metric() -> None:
    known = {name for name, *_ in (*WRITER["store_rows"](), *WRITER["controller_rows"]())}
    parts = {f"{name}{part}" for name in known for part in ("_bucket", "_sum", "_count")}
    for path in sorted((ROOT / "docs").glob("*.md")):
        named = set(re.findall(r"\bpravega_(?:store|container|controller)_[a-z0-9_]+\b", path.read_text()))
        assert named <= known | parts, path.name
