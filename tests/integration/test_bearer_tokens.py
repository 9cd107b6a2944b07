"""Callers with bearer tokens of an identity provider, over gRPC and REST of a standalone that has users, too."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from pravega_common.errors import AccessDenied, AuthenticationFailed
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.credentials import BasicCredentials, BearerCredentials
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.stream_manager import StreamManager
from tests.support.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.support.security_cluster import PASSWORD, authenticating_cluster

WRITER = "prn::/scope:s/stream:t,READ_UPDATE"
READER = "prn::/scope:s/stream:t,READ"
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[StandaloneProcess]:
    folder = tmp_path_factory.mktemp("bearer")
    keys = folder / "keys.json"
    keys.write_bytes(provider.document)
    settings = {"JWT_KEYS": str(keys), "JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE}
    environment = {f"PRAVEGA_CONTROLLER_SECURITY__{name}": value for name, value in settings.items()}
    with authenticating_cluster(folder / "c", {"admin": "prn::*,READ_UPDATE"}, environment) as started:
        with StreamManager(started.controller_uri, credentials=BasicCredentials("admin", PASSWORD)) as admin:
            admin.create_scope("s")
            admin.create_stream("s", "t", 2)
        yield started


def client_of(cluster: StandaloneProcess, token: str) -> StreamClient:
    return StreamClient(cluster.controller_uri, credentials=BearerCredentials(token))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_token_permits_what_its_claim_says(
    cluster: StandaloneProcess, provider: IdentityProvider, algorithm: str
) -> None:
    event = algorithm.encode()
    writer_token = provider.token(time.time(), algorithm, sub="w", pravega_access=WRITER)
    with client_of(cluster, writer_token) as client, EventWriter(client, "s", "t") as writer:
        writer.write(event, "key")
    with client_of(cluster, provider.token(time.time(), algorithm, sub="r", pravega_access=READER)) as reading:
        assert event in {bytes(found.data) for found in read_events(reading, "s", "t")}
        with pytest.raises(AccessDenied, match="user r has no"):
            reading.controller.seal_stream("s", "t")


def test_tokens_that_count_for_nothing(cluster: StandaloneProcess, provider: IdentityProvider) -> None:
    now_s = time.time()
    stranger = IdentityProvider()
    for token, refusal in (
        (provider.token(now_s), AccessDenied),
        (provider.token(now_s - 3_600, pravega_access=WRITER), AuthenticationFailed),
        (provider.token(now_s, aud="another", pravega_access=WRITER), AuthenticationFailed),
        (stranger.token(now_s, pravega_access=WRITER), AuthenticationFailed),
    ):
        with client_of(cluster, token) as client, pytest.raises(refusal):
            client.controller.current_segments("s", "t")


def test_rest_takes_tokens_and_says_what_it_takes(cluster: StandaloneProcess, provider: IdentityProvider) -> None:
    url = f"http://{cluster.ready()['rest']}/v1/scopes/s/streams/t"
    token = provider.token(time.time(), pravega_access=READER)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=30)
    assert refused.value.code == 401
    assert refused.value.headers["WWW-Authenticate"] == 'Basic realm="pravega", Bearer realm="pravega"'
