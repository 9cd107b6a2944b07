"""Makes what a drill's peers may and may not change, and takes the fingerprint of the latter."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name, table_stream
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.controller.reader_groups import ReaderGroupClient
from pravega_streams.credentials import BasicCredentials
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from pravega_streams.stream_manager import StreamManager
from pravega_streams.table.key_value_table import CompositeKey
from tests.drills.fuzz.values import Target
from tests.support.security_cluster import PASSWORD

OWN, FOREIGN, GOOD = "attack", "vault", "good"
"""The scopes of the peers, of what they may not change, and of the good client."""
OWN_STREAMS: Final = ("a", "b", "c", "d")
OWN_TABLES: Final = ("t", "u")
FOREIGN_STREAMS: Final = ("ledger", "sealed", "tagged")
FOREIGN_TABLES: Final = ("accounts",)
GOOD_STREAM: Final = "events"
events_of_ledger: Final = 200
ADMIN, PEER, CLIENT = "admin", "mallory", "alice"
USERS: Final = {
    ADMIN: "prn::*,READ_UPDATE",
    PEER: f"prn::/scope:{OWN}/*,READ_UPDATE;prn::/scope:{OWN},READ_UPDATE;prn::/scope:{FOREIGN}/stream:ledger,READ",
    CLIENT: f"prn::/scope:{GOOD}/*,READ_UPDATE",
}


def client_of(user: str, uri: str) -> StreamClient:
    return StreamClient(uri, credentials=BasicCredentials(user, PASSWORD))


def make(uri: str) -> None:
    """Make the scopes, and fill the one that must not change."""
    with StreamManager(uri, credentials=BasicCredentials(ADMIN, PASSWORD)) as admin:
        for scope in (OWN, FOREIGN, GOOD):
            admin.create_scope(scope)
        for stream in OWN_STREAMS:
            admin.create_stream(OWN, stream, 2)
        for stream in FOREIGN_STREAMS:
            configuration = StreamConfiguration(ScalingPolicy.fixed(2), tags=("kept",) if stream == "tagged" else ())
            admin.create_stream(FOREIGN, stream, configuration)
        admin.create_stream(GOOD, GOOD_STREAM, 2)
        for scope, tables in ((OWN, OWN_TABLES), (FOREIGN, FOREIGN_TABLES)):
            for name in tables:
                admin.create_key_value_table(scope, name, primary_key_length=4)
        accounts = admin.open_key_value_table(FOREIGN, FOREIGN_TABLES[0])
        for number in range(50):
            accounts.put(CompositeKey(b"%04d" % number), b"value %d" % number)
        admin.create_reader_group(FOREIGN, "auditors", ["ledger"])
    with client_of(ADMIN, uri) as admin_client:
        with EventWriter(admin_client, FOREIGN, "ledger") as writer:
            for number in range(events_of_ledger):
                writer.write(b"entry %d" % number, f"key-{number % 7}")
        with EventWriter(admin_client, FOREIGN, "sealed") as writer:
            writer.write(b"the last words", "key")
        admin_client.controller.seal_stream(FOREIGN, "sealed")
        # Stays open, and must be neither committed nor aborted by others.
        TransactionalWriter(admin_client, FOREIGN, "ledger").begin().write(b"not committed", "key")


def target(uri: str, user: str | None) -> Target:
    """What a peer knows; without a user it has no tokens."""
    tokens: dict[str, str] = {}
    if user is not None:
        with client_of(user, uri) as client:
            streams = (*((OWN, name) for name in (*OWN_STREAMS, *map(table_stream, OWN_TABLES))), (FOREIGN, "ledger"))
            tokens = {f"{scope}/{name}": client.controller.delegation_token(scope, name) for scope, name in streams}
    return Target(OWN, _segments_of_own(uri), OWN_TABLES, FOREIGN, FOREIGN_STREAMS, FOREIGN_TABLES, tokens)


def _segments_of_own(uri: str) -> dict[str, tuple[str, ...]]:
    """The segments of the peers' streams: a stream that is made again begins with other numbers."""
    found: dict[str, tuple[str, ...]] = {stream: (f"{OWN}/{stream}/0.#epoch.0",) for stream in OWN_STREAMS}
    with client_of(ADMIN, uri) as client:
        for stream in OWN_STREAMS:
            with contextlib.suppress(PravegaError):
                segments = client.controller.current_segments(OWN, stream)
                found[stream] = tuple(segment_name(OWN, stream, segment.segment_id) for segment in segments)
    return found


def renew(uri: str) -> None:
    """Make the peers' own streams and tables anew: peers seal and delete them, and later ones are to meet them."""
    with StreamManager(uri, credentials=BasicCredentials(ADMIN, PASSWORD)) as admin:
        for stream in OWN_STREAMS:
            # A peer may be at work on it, too, or have deleted it.
            with contextlib.suppress(PravegaError):
                admin.seal_stream(OWN, stream)
                admin.delete_stream(OWN, stream)
            admin.create_stream(OWN, stream, 2)
        for name in OWN_TABLES:
            admin.create_key_value_table(OWN, name, primary_key_length=4)


def fingerprint(uri: str) -> dict[str, str]:
    """What no peer may change, by the name of each part: catalogue, configurations, segments, events, entries."""
    found: dict[str, str] = {}
    with StreamManager(uri, credentials=BasicCredentials(ADMIN, PASSWORD)) as admin:
        found["scopes"] = repr(sorted(admin.list_scopes()))
        for scope in (FOREIGN, GOOD):
            found[f"streams of {scope}"] = repr(sorted(admin.list_streams(scope)))
            found[f"tables of {scope}"] = repr(sorted(admin.list_key_value_tables(scope)))
        entries = admin.open_key_value_table(FOREIGN, FOREIGN_TABLES[0]).entries()
        found["entries"] = _digest(repr(sorted((bytes(entry.key.primary), entry.value) for entry in entries)).encode())
    with client_of(ADMIN, uri) as client:
        for stream in FOREIGN_STREAMS:
            found |= {f"{stream}: {name}": value for name, value in _of_stream(client, stream).items()}
        found["subscribers"] = repr(
            sorted(ReaderGroupClient(client.controller.transport).subscribers(FOREIGN, "ledger"))
        )
        found["transactions"] = repr(client.operations.describe(FOREIGN, "ledger"))
        found["sinks"] = repr(sorted(map(repr, client.sets.list_sinks())))
    return found


def _of_stream(client: StreamClient, stream: str) -> dict[str, str]:
    controller = client.controller
    head, tail = client.head_cut(FOREIGN, stream), client.tail_cut(FOREIGN, stream)
    infos = client.segment_infos(FOREIGN, stream, tail)
    events = b"".join(bytes(event.data) for event in read_events(client, FOREIGN, stream))
    return {
        "configuration": repr(controller.stream_configuration(FOREIGN, stream)),
        "segments": repr(controller.current_segments(FOREIGN, stream)),
        "cuts": repr((sorted(head.items()), sorted(tail.items()))),
        "lengths": repr(sorted((number, info.length, info.is_sealed) for number, info in infos.items())),
        "events": _digest(events),
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
