"""Checks that a public class name is defined once in the repository, so that one name means one thing."""

from __future__ import annotations

import ast

from tests.tidy.test_tidy import relative, sources, tree_of

WIRE_NAME = "a command or value of Pravega's wire protocol keeps Pravega's name"
SETTLED_SOON = "being settled"
DEFINED_TWICE = {
    "ClusterSection": SETTLED_SOON,
    "CommitMarks": SETTLED_SOON,
    "SegmentSealed": WIRE_NAME,
    "SegmentTruncated": WIRE_NAME,
}
"""Names that two classes share, each with the reason."""


def places_of_classes() -> dict[str, list[str]]:
    """The files of each public class of a module."""
    places: dict[str, list[str]] = {}
    for path in sources():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(relative(path))
    return places


def test_a_class_name_is_defined_once() -> None:
    places = places_of_classes()
    repeated = {name: files for name, files in places.items() if len(files) > 1 and name not in DEFINED_TWICE}
    assert not repeated


def test_the_exceptions_are_needed() -> None:
    places = places_of_classes()
    assert not [name for name in DEFINED_TWICE if len(places.get(name, ())) < 2]
