"""Holds ``conf/redis.conf`` against the settings that the standalone writes, and both against what stores accept."""

from __future__ import annotations

from pathlib import Path

from pravega_common.services.cluster.redis_audit import CONFIG_NAMES, find_problems
from pravega_spark.standalone.redis_and_minio import aof_rewrite_bytes_max, redis_configuration

CONF = Path(__file__).resolve().parents[4] / "conf" / "redis.conf"
OF_THE_MACHINE = {"auto-aof-rewrite-min-size", "bind", "port", "dir", "maxmemory"}
"""Settings whose values are those of one machine."""
ONLY_OF_THE_STANDALONE = {"unixsocket", "unixsocketperm"}


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = {name: value for name, _, value in (line.partition(" ") for line in lines)}
    assert len(found) == len(lines), "a setting is there twice"
    return found


def test_the_standalone_and_the_file_say_the_same() -> None:
    file, standalone = settings(CONF.read_text()), settings(redis_configuration)
    assert file.keys() - standalone.keys() == {"bind"}
    assert standalone.keys() - file.keys() == ONLY_OF_THE_STANDALONE
    assert standalone["port"] == "0" and standalone["unixsocketperm"] == "700"
    for name in file.keys() - OF_THE_MACHINE:
        assert file[name] == standalone[name], name
    assert file["auto-aof-rewrite-min-size"] == f"{aof_rewrite_bytes_max >> 30}gb"


def test_stores_accept_the_file_and_no_setting_of_it_can_be_left_out() -> None:
    info = {"redis_version": "7.0.15", "loading": "0", "role": "master", "cluster_enabled": "0"}
    file = {**settings(CONF.read_text()), "auto-aof-rewrite-min-size": str(aof_rewrite_bytes_max)}
    assert find_problems(info, file) == []
    for name in CONFIG_NAMES:
        assert find_problems(info, {key: value for key, value in file.items() if key != name}), name


def test_every_setting_says_why() -> None:
    assert all(paragraph.startswith("# ") for paragraph in CONF.read_text().split("\n\n"))
