"""The names of scopes that doctor makes tell when they were made, and no other name does."""

from __future__ import annotations

import pytest

from pravega_spark.commands.scratch import made_at_s, scratch_scope


def test_a_name_tells_when_it_was_given() -> None:
    assert made_at_s(scratch_scope(1_763_900_000.9)) == 1_763_900_000
    assert scratch_scope(1_763_900_000) != scratch_scope(1_763_900_000)


@pytest.mark.parametrize(
    "name",
    [
        "doctor-who",
        "doctor-1f2e3d4c5b6a",
        "doctor-6923a1b2",
        "xdoctor-6923a1b2-1f2e3d4c5b6a",
        "doctor-6923a1b2-1f2e3d4c5b6a-2",
    ],
)
def test_other_names_are_of_others(name: str) -> None:
    assert made_at_s(name) is None
