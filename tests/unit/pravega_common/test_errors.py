"""Tests the error tree: its drawing, and the outcomes that retrying code reads."""

from __future__ import annotations

import ast
import re

import pytest

from pravega_common import errors
from pravega_common.errors import (
    DataCorruption,
    FailedError,
    Fenced,
    Outcome,
    RejectedError,
    ScopeNotFound,
    StreamNotFound,
    UnknownOutcome,
)
from tests.tidy.test_tidy import sources, tree_of

_BRANCH = re.compile(r"^(?P<indent>(?:│   |    )*)(?:├── |└── )(?P<name>\w+)")


def drawn() -> dict[str, str]:
    """The parent of every class in the drawing of the module's docstring."""
    parents, path = {}, ["PravegaError"]
    for line in (errors.__doc__ or "").splitlines():
        match = _BRANCH.match(line[4:])
        if match:
            depth = len(match["indent"]) // 4 + 1
            path[depth:] = [match["name"]]
            parents[match["name"]] = path[depth - 1]
    return parents


def defined() -> dict[str, str]:
    """The parent of every class in the repository that descends from ``PravegaError``."""
    bases = [
        (node.name, node.bases[0].id)
        for path in sources()
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name)
    ]
    found: dict[str, str] = {}
    known = {"PravegaError"}
    while more := {name: base for name, base in bases if base in known and name not in found}:
        found |= more
        known |= more.keys()
    return found


def test_the_drawing_has_every_error_below_its_parent() -> None:
    assert drawn() == defined()


@pytest.mark.parametrize(
    ("error", "outcome", "retryable", "repeatable"),
    [
        (RejectedError(), Outcome.REJECTED, False, False),
        (FailedError(), Outcome.FAILED, True, True),
        (Fenced(), Outcome.FENCED, False, False),
        (UnknownOutcome(), Outcome.UNKNOWN, False, True),
        (DataCorruption(), Outcome.REJECTED, False, False),
    ],
)
def test_each_branch_has_its_outcome(
    error: errors.PravegaError, outcome: Outcome, retryable: bool, repeatable: bool
) -> None:
    assert (error.outcome, error.retryable) == (outcome, retryable)
    assert error.may_be_repeated(idempotent=False) == retryable
    assert error.may_be_repeated(idempotent=True) == repeatable


def test_fenced_does_not_count_as_failed() -> None:
    assert not isinstance(Fenced(), FailedError)


def test_errors_of_missing_things_name_them() -> None:
    assert str(ScopeNotFound.of("s")) == "scope 's' does not exist"
    assert str(StreamNotFound.of("s", "t")) == "stream s/t does not exist"
