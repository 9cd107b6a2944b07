"""What Spark's Python workers look through for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from pravega_spark.gateway.connect import gateway_for, register_scheme
from pravega_spark.gateway.worker_process import spare_collections
from tests.support.fakes.stream_gateway import address_scheme, open_address


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_is_there_at_the_first_call_is_left_out() -> None:
    spare_collections()
    frozen = gc.get_freeze_count()
    assert frozen > 1_000
    later = [[index] for index in range(1_000)]
    spare_collections()
    assert gc.get_freeze_count() <= frozen
    assert any(found is later for found in gc.get_objects())


def test_the_first_use_of_a_store_spares_the_process(tmp_path: Path) -> None:
    register_scheme(address_scheme, open_address)
    gateway_for(f"{address_scheme}://{tmp_path}")
    assert gc.get_freeze_count() > 1_000
