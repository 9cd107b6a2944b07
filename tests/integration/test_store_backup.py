"""A standalone is copied while events are written, destroyed, and comes back from the copy: events are counted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking
from tests.support.long_tests import long_but_for
from tests.support.standalone_operator import (
    EventLoad,
    create_stream,
    destroy_control_plane,
    destroy_tier1,
    destroy_tier2,
    keys,
    kill_everything,
    put_table,
    read,
    read_table,
    servers_alone,
    store_command,
    table_keys,
    write,
)

events_before = 4_000
events_after = 2_000
wait_max_s = 60.0
CLUSTERS: dict[str, dict[str, Any]] = {
    "one server": {},
    "minio": {"tier2": "minio"},
    "three servers": {"redis_servers": 3},
    "three servers, minio, two stores": {"redis_servers": 3, "tier2": "minio", "segment_stores": 2},
    "log in files": {"tier1": "file"},
}
ALWAYS = ("three servers, minio, two stores", "log in files")


@pytest.mark.parametrize("options", long_but_for(ALWAYS, CLUSTERS))
def test_a_backup_under_load_serves_what_was_acknowledged_before(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = tmp_path / "backup"
    with running_cluster(tmp_path / "c", **options) as own:
        create_stream(own)
        write(own, 0, events_before)
        put_table(own, 1)
        with EventLoad(own, events_before) as load:
            eventually_blocking(lambda: load.written > events_before + 500, "the load", wait_max_s)
            acknowledged = load.written - keys
            done = store_command(own, "backup", str(folder))
            examined = store_command(own, "doctor")
            put_table(own, 2)
            at_end = load.written
            eventually_blocking(lambda: load.written > at_end + 500, "the load after the backup", wait_max_s)
        assert done["files"] > 0 and done["damaged"] == []
        assert examined["is_sound"] and all(one["log"] for one in examined["containers"])
        kill_everything(own)
        destroy_tier1(own)
        destroy_tier2(own)
        destroy_control_plane(own)
        with servers_alone(own):
            planned = store_command(own, "restore", f"--from={folder}", status=1)
            assert not planned["is_done"] and planned["containers"]
            assert store_command(own, "restore", f"--from={folder}", "--yes")["is_done"]
        own.start()
        found = read(own)
        total = sum(map(len, found.values()))
        assert acknowledged <= total <= load.written
        for key in range(keys):
            assert found[key] == list(range(key, key + keys * len(found[key]), keys))
        write(own, 1_000_000, events_after)
        for key in range(keys):
            found[key] += range(1_000_000 + key, 1_000_000 + events_after, keys)
        assert read(own) == found
        examined = store_command(own, "doctor", "--deep")
        assert examined["is_sound"] and sum(one["table_indexes"] for one in examined["containers"]) == 1
        assert read_table(own) == [1] * table_keys


def test_a_backup_of_a_store_that_is_stopped_and_has_its_log_in_files(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    with running_cluster(tmp_path / "c", tier1="file") as own:
        create_stream(own)
        write(own, 0, events_before)
        assert own.stop() == 0
        assert store_command(own, "backup", str(folder))["files"] > 0
        for path in (own.folder / "data").iterdir():
            if path.is_dir() and path.name not in ("conf", "tls"):
                shutil.rmtree(path)
                path.mkdir()
        assert store_command(own, "restore", f"--from={folder}", "--yes")["is_done"]
        own.start()
        assert read(own) == {key: list(range(key, events_before, keys)) for key in range(keys)}
