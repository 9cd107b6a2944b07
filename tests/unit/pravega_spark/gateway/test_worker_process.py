"""Python processes that Spark starts: what a first use of a store does, and garbage collection."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pravega_spark.gateway import worker_process
from pravega_spark.gateway.connect import gateway_for, register_scheme
from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.gateway.worker_process import freeze_imported_objects, heap_kept_bytes, worker_gateway
from pravega_spark.options.definitions import Use
from pravega_spark.options.write_options import WriteOptions
from pravega_streams.credentials import BasicCredentials
from tests.support.fakes.stream_gateway import address_scheme, open_address


@pytest.fixture(autouse=True)
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.unfreeze()
    monkeypatch.setattr(worker_process, "_done", set())
    monkeypatch.setattr(worker_process, "_modules_when_frozen", {})
    yield
    gc.unfreeze()


def test_what_is_there_at_the_first_call_is_left_out() -> None:
    freeze_imported_objects()
    frozen = gc.get_freeze_count()
    assert frozen > 1_000
    later = [[index] for index in range(1_000)]
    freeze_imported_objects()
    assert gc.get_freeze_count() <= frozen
    assert any(found is later for found in gc.get_objects())


def test_what_was_imported_since_is_left_out_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark imports pandas when the first task that writes ends."""
    freeze_imported_objects()
    frozen = gc.get_freeze_count()
    later = ModuleType("later")
    later.held = [[index] for index in range(1_000)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "later", later)
    freeze_imported_objects()
    assert gc.get_freeze_count() > frozen + 1_000


def test_the_first_use_of_a_store_by_spark_spares_the_process(tmp_path: Path) -> None:
    register_scheme(address_scheme, open_address)
    worker_gateway(f"{address_scheme}://{tmp_path}")
    assert gc.get_freeze_count() > 1_000


def test_freed_memory_stays_with_a_process_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[int, bool]] = []

    def keep_freed_memory(kept_bytes_max: int, *, of_any_size: bool) -> None:
        kept.append((kept_bytes_max, of_any_size))

    monkeypatch.setattr(worker_process, "keep_freed_memory", keep_freed_memory)
    register_scheme(address_scheme, open_address)
    for _ in range(2):
        worker_gateway(f"{address_scheme}://{tmp_path}")
    assert kept == [(heap_kept_bytes, True)]


def test_to_ask_for_a_gateway_changes_nothing_else(tmp_path: Path) -> None:
    register_scheme(address_scheme, open_address)
    address = f"{address_scheme}://{tmp_path}"
    assert gateway_for(address) is gateway_for(address) is worker_gateway(address)
    gc.unfreeze()
    gateway_for(f"{address}/other")
    assert gc.get_freeze_count() == 0


def test_a_fork_opens_a_gateway_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register_scheme(address_scheme, open_address)
    address = f"{address_scheme}://{tmp_path}"
    mine = gateway_for(address)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert gateway_for(address) is not mine


def test_a_gateway_shows_the_password_of_the_file_that_options_name_now(tmp_path: Path) -> None:
    """The first file was wrong, and the process that plans the next query is the same."""
    shown = []
    for name in ("wrong", "right"):
        (tmp_path / name).write_text(name)
        given = {"controller": "tcp://localhost:1", "scope": "s", "stream": "t"}
        credentials = {"user": "alice", "password_file": str(tmp_path / name)}
        gateway = gateway_for(WriteOptions.parse({**given, **credentials}, Use.BATCH_WRITE).controller)
        assert gateway is gateway_for(WriteOptions.parse({**given, **credentials}, Use.BATCH_WRITE).controller)
        assert isinstance(gateway, ServiceGateway) and gateway.credentials is not None
        shown.append(gateway.credentials.header())
    assert shown == [BasicCredentials("alice", name).header() for name in ("wrong", "right")]
