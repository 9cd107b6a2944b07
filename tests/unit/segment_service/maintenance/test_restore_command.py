"""The command names what a restore loses, and what has to be looked at."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pravega_common.errors import Unavailable
from segment_service.contracts.data_log import DurableDataLog
from segment_service.maintenance import backup_files, restore_command
from segment_service.maintenance.__main__ import main
from segment_service.maintenance.backup_files import BackupHeader
from segment_service.maintenance.restore_command import Places
from segment_service.maintenance.restore_plan import RestorePlan
from segment_service.maintenance.store_restore import ContainerOutcome
from segment_service.store import container_marker_prefix
from tests.support.backups import Place, write_names
from tests.support.fakes.data_log import InMemoryLogStore
from tests.support.log_reading import InMemoryLogSource


def test_the_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    plan = RestorePlan(3, 1, 90, 70, 5, segments=4, length=400)
    plan.shorter.add("scope/stream/1.#epoch.0", 30, 20)
    plan.maybe_merged.add("scope/stream/0.#epoch.0#transaction.7", 12, 0)
    restore_command.print_outcome(ContainerOutcome(3, plan))
    restore_command.print_outcome(ContainerOutcome(4, None, "it never ran"))
    assert capsys.readouterr().out == (
        "container 3: 4 segments with 400 bytes are served again\n"
        "  lost: operations above 70 as far as Tier 2 does not show their effect, those above 90 in any case\n"
        "  1 segments lose bytes that the metadata table knows of: 10 bytes lost\n"
        "    scope/stream/1.#epoch.0: length 30, Tier 2 has 20\n"
        "  1 transactions come back open, and their 12 bytes may be in their streams already: read these before you "
        "let the transactions be committed\n"
        "    scope/stream/0.#epoch.0#transaction.7\n"
        "container 4: nothing to restore: it never ran\n"
    )


class FailsAtTheSecond(Place):
    """Two containers whose logs are lost; Tier 1 is away when the second one is restored."""

    async def start_over(self, container_id: int, epoch_min: int) -> DurableDataLog:
        if container_id == 1:
            raise Unavailable("Redis is away")
        return await super().start_over(container_id, epoch_min)


@contextlib.asynccontextmanager
async def lost_logs(config: object) -> AsyncIterator[Places]:
    """The places of a cluster of two containers whose Tier 1 was lost."""
    place = FailsAtTheSecond()
    await place.stored.put(f"{container_marker_prefix}2/x", [b"containers\n"])
    for container_id in range(2):
        container = await place.open(container_id)
        await write_names(place, container, ["segment"])
        await container.stop()
    place.logs = InMemoryLogStore()
    yield Places(place.cpo, place.chunks, InMemoryLogSource(place.logs), place, place.clock)


@pytest.mark.parametrize("as_json", [False, True])
def test_the_report_of_a_restore_that_fails_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """A restore that is made again does not know any more what the one before had lost."""
    settings = tmp_path / "store.toml"
    settings.write_text("[store]\ncontainers = 2\n")
    monkeypatch.setattr(restore_command, "_opened", lost_logs)
    options = argparse.Namespace(config=settings, backup=None, container=[], yes=True, json=as_json)
    with pytest.raises(Unavailable, match="away"):
        restore_command._run(options)
    printed = capsys.readouterr().out
    if as_json:
        document = json.loads(printed[printed.index("{\n") :])
        assert not document["is_done"]
        assert [one["plan"]["segments"] for one in document["containers"]] == [1, 1]
    else:
        assert "container 0: 1 segments with 7 bytes are served again" in printed
        assert "container 1: 1 segments" in printed and "start the stores" not in printed


def test_a_file_in_the_place_of_a_backup_is_no_traceback(tmp_path: Path) -> None:
    settings = tmp_path / "store.toml"
    settings.write_text("[store]\ncontainers = 2\n")
    with pytest.raises(SystemExit, match=r"pravega-spark store restore: .*has no inventory, so it is no backup"):
        main(["restore", "--config", str(settings), f"--from={settings}"])


def test_a_full_disk_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> BackupHeader:
        raise OSError(errno.ENOSPC, "No space left on device")

    settings = tmp_path / "store.toml"
    settings.write_text("[store]\ncontainers = 2\n")
    monkeypatch.setattr(backup_files, "verify", full)
    with pytest.raises(SystemExit, match=r"^pravega-spark store restore: .*No space left on device"):
        main(["restore", "--config", str(settings), f"--from={tmp_path}"])
