"""A data folder that commit 40bcc49 wrote is served: its log, chunks without checksums, manifests and marks."""

from __future__ import annotations

import tarfile
from pathlib import Path

from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import running_cluster
from tests.support.repository import ROOT
from tests.support.standalone_operator import store_command

FIXTURE = ROOT / "tests/data/formats/data-folder-40bcc49.tgz"
"""150 events of 7 keys in one segment of ``s/t``, the first 100 in Tier 2, the others in the log alone; 2 containers,
one Redis, a directory as Tier 2. No older commit made a data folder that still has to be read."""
events = 150
keys = 7


def test_a_data_folder_of_40bcc49_is_served(tmp_path: Path) -> None:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    expected = [b"event %d" % number for number in range(events)]
    with running_cluster(tmp_path, containers=2) as own:
        with StreamClient(own.controller_uri) as client:
            assert [bytes(event.data) for event in read_events(client, "s", "t")] == expected
            with EventWriter(client, "s", "t") as writer:
                for number in range(events, 2 * events):
                    writer.write(b"event %d" % number, str(number % keys))
        assert store_command(own, "doctor", "--deep")["is_sound"]
        assert own.stop() == 0
        own.start()
        with StreamClient(own.controller_uri) as client:
            found = [bytes(event.data) for event in read_events(client, "s", "t")]
        assert found == [b"event %d" % number for number in range(2 * events)]
