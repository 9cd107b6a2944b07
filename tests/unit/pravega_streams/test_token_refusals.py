"""A store that refuses a token says no more; the token tells whether a permission is missing."""

from __future__ import annotations

import jwt
import pytest

from pravega_common.errors import AccessDenied, AuthenticationFailed, TokenExpired
from pravega_common.resources import Permission
from pravega_common.wire import commands as c
from pravega_common.wire.codec import encode
from pravega_streams.connection.batches import SegmentBatch, SegmentCall
from pravega_streams.connection.replies import error_of
from tests.support.security import tokens_of

SEGMENT = "s/t/0.#epoch.0"
TABLE = "s/group_kvtable/0.#epoch.0"
STREAM_RESOURCE = "prn::/scope:s/stream:t"
READER = tokens_of().sign("alice", {STREAM_RESOURCE: Permission.READ})
WRITER = tokens_of().sign("alice", {STREAM_RESOURCE: Permission.READ_UPDATE})


def plain_pravega(**claims: str) -> str:
    return jwt.encode({"sub": "alice", **claims}, "k" * 64, "HS512")


def error(request: c.Command, segment: str = SEGMENT, code: int = c.TOKEN_CHECK_FAILED) -> Exception | None:
    return error_of(c.AuthTokenCheckFailed(7, "", code), segment, lambda _: request)


def set_up(token: str, segment: str = SEGMENT) -> c.SetupAppend:
    return c.SetupAppend(7, bytes(16), segment, token)


def test_writing_with_a_token_for_reading_is_not_permitted() -> None:
    found = error(set_up(READER))
    assert isinstance(found, AccessDenied)
    assert f"user alice has no READ_UPDATE on {STREAM_RESOURCE}:" in str(found)
    assert f"the entry {STREAM_RESOURCE},READ_UPDATE" in str(found)


def test_a_table_is_named_by_its_own_resource() -> None:
    resource = "prn::/scope:s/key-value-table:group"
    token = tokens_of().sign("alice", {resource: Permission.READ})
    found = error(c.UpdateTableEntries(7, TABLE, token, (), -1), TABLE)
    assert isinstance(found, AccessDenied) and f"no READ_UPDATE on {resource}" in str(found)
    assert isinstance(error(c.ReadTable(7, TABLE, token, ()), TABLE), AuthenticationFailed)


def test_reading_with_a_token_for_something_else_is_not_permitted() -> None:
    token = tokens_of().sign("alice", {"prn::/scope:s/stream:tt": Permission.READ_UPDATE})
    found = error(c.ReadSegment(SEGMENT, 0, 10, token, 7))
    assert isinstance(found, AccessDenied) and f"no READ on {STREAM_RESOURCE}:" in str(found)


@pytest.mark.parametrize(
    "token",
    [
        WRITER,
        tokens_of().internal(),
        "",
        "a.b.c",
        "..",
        plain_pravega(**{"*": "READ_UPDATE"}),
        plain_pravega(**{"prn::/scope:s": "READ_UPDATE"}),
    ],
)
def test_a_token_that_would_do_or_is_none_is_a_failed_authentication(token: str) -> None:
    found = error(set_up(token))
    assert isinstance(found, AuthenticationFailed) and f"{SEGMENT}: token refused (code 0)" in str(found)
    assert not token or token not in str(found)


@pytest.mark.parametrize("token", ["", tokens_of().sign("op", {"prn::/scope:_system/stream:t": Permission.READ})])
def test_what_is_the_services_is_not_said_to_be_a_wrong_key(token: str) -> None:
    segment = "_system/t/0.#epoch.0"
    found = error(c.ReadSegment(segment, 0, 10, token, 7), segment)
    assert isinstance(found, AuthenticationFailed) and "_system is for services of the cluster alone" in str(found)
    wrong_key = error(c.ReadSegment(segment, 0, 10, tokens_of().internal(), 7), segment)
    assert "compare the cluster keys" in str(wrong_key)


def test_only_a_failed_check_is_a_missing_permission() -> None:
    assert isinstance(error(set_up(READER), code=c.TOKEN_EXPIRED), TokenExpired)
    assert isinstance(error(set_up(READER), code=-1), AuthenticationFailed)
    assert isinstance(error_of(c.AuthTokenCheckFailed(7, "", 0), SEGMENT), AuthenticationFailed)


def test_each_request_of_a_batch_has_its_own_token() -> None:
    batch = SegmentBatch[c.SegmentTruncated]()
    for token in (READER, WRITER):
        batch.add(SegmentCall(SEGMENT, lambda rid: c.TruncateSegment(rid, SEGMENT, 0), c.SegmentTruncated), token)
    replies = tuple(encode(c.AuthTokenCheckFailed(place, "", 0)) for place in range(2))
    outcomes = batch.outcomes(c.RequestBatchAnswered(1, replies), lambda reason: None)
    assert [type(outcome) for outcome in outcomes] == [AccessDenied, AuthenticationFailed]
