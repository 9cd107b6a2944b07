"""Runs a cluster for tests: a standalone on free ports with its own data folder, stopped by process id."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from pravega_common.invariants import check
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient
from tests.support.security_cluster import AuthenticatingStandalone

SECURITY_VARIABLE: Final = "PRAVEGA_TEST_SECURITY"
"""Names what the clusters of whole suites have: ``tls``, ``auth`` or ``auth+tls``; nothing without it."""
KINDS: Final = ("", "tls", "auth", "auth+tls")


@contextmanager
def running_cluster(folder: Path, **options: object) -> Iterator[StandaloneProcess]:
    """``options`` as of ``StandaloneProcess``; on a failure inside, the logs' last lines are in the report.

    With ``PRAVEGA_TEST_SECURITY`` in the environment all of them speak TLS, ask for users or both, and this process and
    those that it starts are an operator's.
    """
    kind = os.environ.get(SECURITY_VARIABLE, "")
    check(kind in KINDS, f"{SECURITY_VARIABLE} is {kind!r}: it may be {', '.join(KINDS[1:])}")
    if "tls" in kind:
        # By name, as the PyPI client knows no certificates of addresses.
        options = {"tls": True, "host": "localhost", **options}
    standalone = AuthenticatingStandalone if "auth" in kind else StandaloneProcess
    cluster = standalone(folder, **options)  # type: ignore[arg-type]
    with cluster:
        if "tls" in kind:
            _trust(cluster)
        try:
            yield cluster
        except BaseException:
            print(cluster.log_tail())
            raise


def _trust(cluster: StandaloneProcess) -> None:
    """Let this process and those that it starts trust a cluster beside all earlier ones."""
    bundle = os.environ.get("PRAVEGA_CA_FILE") or str(cluster.folder / "authorities.pem")
    with Path(bundle).open("a") as file:
        file.write(Path(cluster.ca_file).read_text())
    os.environ.update(PRAVEGA_CA_FILE=bundle, pravega_client_tls_cert_path=bundle)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """One cluster for a test module; import it into the module to use it."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def client(cluster: StandaloneProcess, request: pytest.FixtureRequest) -> Iterator[StreamClient]:
    """A client for a test module, with the scope that the module names ``SCOPE``."""
    with StreamClient(cluster.controller_uri) as made:
        made.controller.create_scope(request.module.SCOPE)
        yield made


def new_stream_in(scope: str, client: StreamClient, segments: int = 1) -> str:
    """Make a stream of a name of its own."""
    name = f"stream-{uuid.uuid4().hex[:8]}"
    client.controller.create_stream(scope, name, StreamConfiguration(ScalingPolicy.fixed(segments)))
    return name
