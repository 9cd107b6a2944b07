"""Tests ``scope delete``, ``table`` and ``group`` on a controller of this process, whose stores are in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from controller_service.service import Controller
from pravega_common.errors import InvalidArgument, NotFound, ScopeNotEmpty, ScopeNotFound
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.application import make_application
from pravega_streams.client import StreamClient
from pravega_streams.controller.reader_groups import ReaderGroupClient
from pravega_streams.stream_manager import StreamManager
from pravega_streams.table.key_value_tables import KeyValueTableSettings
from tests.support.controller_in_memory import ControllerParts


class Cluster:
    def __init__(self, controller: Controller) -> None:
        self.uri = f"tcp://127.0.0.1:{controller.grpc.port}"

    async def run(self, *words: str) -> Any:
        command = [*words, "--controller", self.uri]
        return await asyncio.to_thread(CliRunner().invoke, make_application(words), command)

    async def json(self, *words: str) -> Any:
        result = await self.run(*words, "--json")
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.stdout)

    async def refusal(self, kind: type[Exception], *words: str) -> str:
        error = (await self.run(*words)).exception
        assert isinstance(error, kind), error
        return str(error)

    async def make(self, *, streams: int = 0, group: str = "", table: str = "") -> None:
        await asyncio.to_thread(self._make, streams, group, table)

    def _make(self, streams: int, group: str, table: str) -> None:
        with StreamClient(self.uri) as client:
            client.controller.create_scope("s")
            for number in range(streams):
                client.controller.create_stream("s", f"t{number}", StreamConfiguration(ScalingPolicy.fixed(1)))
            if group:
                groups = ReaderGroupClient(client.controller.transport)
                groups.create("s", group, [("s", "t0")], ReaderGroupRetention.MANUAL, 3_000)
            if table:
                client.key_value_tables.create("s", table, KeyValueTableSettings(1, 8))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    controller = ControllerParts().controller()
    await controller.start()
    # The runner takes the process's standard output, to which the controller would log.
    with capture_logs():
        yield Cluster(controller)
        await controller.stop()


async def test_an_empty_scope_is_deleted(cluster: Cluster) -> None:
    await cluster.make()
    assert "deleting scope 's' needs --yes" in await cluster.refusal(InvalidArgument, "scope", "delete", "s")
    assert await cluster.json("scope", "delete", "s", "--yes") == {"scope": "s", "deleted": True}
    assert await cluster.refusal(ScopeNotFound, "scope", "delete", "s", "--yes") == (
        "scope 's' does not exist; see pravega-spark scope list"
    )
    await cluster.make()
    assert (await cluster.run("scope", "delete", "s", "--yes")).output == "s deleted\n"
    assert "_system" in await cluster.refusal(InvalidArgument, "scope", "delete", "_system", "--yes")


async def test_what_is_left_in_a_scope_is_named_with_what_removes_it(cluster: Cluster) -> None:
    await cluster.make(streams=1)
    assert await cluster.refusal(ScopeNotEmpty, "scope", "delete", "s", "--yes") == (
        "scope 's' is not empty; it has 1 stream (t0), which goes by: pravega-spark stream delete s/t0 --seal"
    )
    await cluster.make(streams=5, group="readers", table="names")
    assert await cluster.refusal(ScopeNotEmpty, "scope", "delete", "s") == (
        "scope 's' is not empty; it has 5 streams (t0, t1, t2 and 2 more), each of which goes by: pravega-spark stream "
        "delete s/NAME --seal; 1 reader group (readers), which goes by: pravega-spark group delete s/readers; "
        "1 key-value table (names), which goes by: pravega-spark table delete s/names"
    )


async def test_tables(cluster: Cluster) -> None:
    await cluster.make(table="names")
    expected = [{"scope": "s", "table": "names"}]
    assert await cluster.json("table", "list") == await cluster.json("table", "list", "s") == expected
    assert (await cluster.run("table", "list")).output.splitlines()[0] == "1 key-value table"
    assert "'none' does not exist" in await cluster.refusal(ScopeNotFound, "table", "list", "none")
    assert "'s/other' does not exist; see" in await cluster.refusal(NotFound, "table", "delete", "s/other", "--yes")
    assert "'s/names' needs --yes" in await cluster.refusal(InvalidArgument, "table", "delete", "s/names")
    assert await cluster.json("table", "delete", "s/names", "--yes") == {"table": "s/names", "deleted": True}
    assert await cluster.json("table", "list", "s") == []


async def test_groups(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a group is in a table of a store, which is not here; ``test_commands.py`` deletes a whole group."""
    deleted: list[str] = []

    def delete(manager: StreamManager, scope: str, group: str) -> bool:
        deleted.append(f"{scope}/{group}")
        return True

    def find(manager: StreamManager, scope: str, group: str) -> None:
        raise NotFound(f"{scope}/{group}")

    monkeypatch.setattr(StreamManager, "delete_reader_group", delete)
    monkeypatch.setattr(StreamManager, "open_reader_group", find)
    await cluster.make(streams=1, group="readers")
    expected = [{"scope": "s", "group": "readers"}]
    assert await cluster.json("group", "list") == await cluster.json("group", "list", "s") == expected
    assert (await cluster.run("group", "list")).output.splitlines()[0] == "1 reader group"
    assert "'none' does not exist" in await cluster.refusal(ScopeNotFound, "group", "list", "none")
    assert "'s/other' does not exist; see" in await cluster.refusal(NotFound, "group", "delete", "s/other", "--yes")
    assert "'s/readers' needs --yes" in await cluster.refusal(InvalidArgument, "group", "delete", "s/readers")
    assert not deleted
    assert await cluster.json("group", "delete", "s/readers", "--yes") == {"group": "s/readers", "deleted": True}
    assert deleted == ["s/readers"]
