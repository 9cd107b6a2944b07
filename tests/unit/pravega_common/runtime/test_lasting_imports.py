"""The garbage collector leaves alone what is imported, while that lasts and later."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pravega_common.runtime.lasting_imports import lasting_imports


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_meanwhile_and_what_was_made_is_left_alone_later() -> None:
    before = gc.get_freeze_count()
    with lasting_imports():
        assert not gc.isenabled()
        made = [[number] for number in range(10_000)]
    assert gc.isenabled() and gc.get_freeze_count() >= before + len(made)


def test_a_failed_import_leaves_the_collector_on() -> None:
    with pytest.raises(ModuleNotFoundError), lasting_imports():
        raise ModuleNotFoundError
    assert gc.isenabled()
