"""A standalone whose Tier 1 is destroyed comes back from Tier 2: events are counted at a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pravega_spark.standalone.process import StandaloneProcess
from tests.support.cluster import running_cluster
from tests.support.long_tests import long_but_for
from tests.support.standalone_operator import (
    create_stream,
    destroy_tier1,
    keys,
    kill_everything,
    put_table,
    read,
    read_table,
    servers_alone,
    store_command,
    table_keys,
    wait_until_in_tier2,
    write,
)

events_settled = 4_000
events_hurried = 4_000
CLUSTERS: dict[str, dict[str, Any]] = {"redis": {}, "minio": {"tier2": "minio"}, "three": {"redis_servers": 3}}


def restore(cluster: StandaloneProcess) -> list[dict[str, Any]]:
    """Restore all containers; their plans."""
    with servers_alone(cluster):
        before = store_command(cluster, "restore", status=1)
        assert not before["is_done"]
        done = store_command(cluster, "restore", "--yes")
        plans = [one["plan"] for one in done["containers"]]
        again = store_command(cluster, "restore")
    assert plans == [one["plan"] for one in before["containers"]] and all(plans)
    assert [one["plan"] for one in again["containers"]] == [None] * len(plans)
    return plans


@pytest.mark.parametrize("options", long_but_for(["three"], CLUSTERS))
def test_a_crash_and_the_loss_of_redis(tmp_path: Path, options: dict[str, Any]) -> None:
    """The control plane is lost, too. Of the events, at most those are that came after the last flush."""
    with running_cluster(tmp_path, **options) as own:
        create_stream(own)
        write(own, 0, events_settled)
        wait_until_in_tier2(own)
        write(own, events_settled, events_hurried)
        kill_everything(own)
        destroy_tier1(own)
        restore(own)
        own.start()
        found = read(own)
        for key in range(keys):
            assert found[key] == list(range(key, key + keys * len(found[key]), keys))
            assert len(found[key]) >= events_settled // keys
        write(own, 100_000, events_settled)
        for key in range(keys):
            found[key] += range(100_000 + key, 100_000 + events_settled, keys)
        assert read(own) == found
        assert store_command(own, "doctor", "--deep")["is_sound"]


def test_a_clean_stop_and_the_loss_of_a_log_in_files(tmp_path: Path) -> None:
    """The control plane survives. Nothing is lost, as the stop brought everything to Tier 2."""
    with running_cluster(tmp_path, tier1="file") as own:
        create_stream(own)
        write(own, 0, events_settled)
        put_table(own, 1)
        assert own.stop() == 0
        destroy_tier1(own)
        plans = restore(own)
        assert [plan["shorter"]["count"] + plan["nameless"]["count"] for plan in plans] == [0] * len(plans)
        own.start()
        found = read(own)
        assert found == {key: list(range(key, events_settled, keys)) for key in range(keys)}
        assert read_table(own) == [1] * table_keys
        put_table(own, 2)
        assert read_table(own) == [2] * table_keys
        assert sum(one["table_indexes"] for one in store_command(own, "doctor")["containers"]) == 1
        write(own, events_settled, keys)
        assert sum(map(len, read(own).values())) == events_settled + keys
