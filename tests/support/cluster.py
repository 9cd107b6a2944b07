"""Runs a cluster for tests: a standalone on free ports with its own data folder, stopped by process id."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient
from tests.support.secured_suite import clients_environment, security_of_suite, trust
from tests.support.security_cluster import AuthenticatingStandalone


@contextmanager
def running_cluster(
    folder: Path, *, as_is: str = "", environment: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> Iterator[StandaloneProcess]:
    """``options`` as of ``StandaloneProcess``; on a failure inside, the logs' last lines are in the report.

    With ``PRAVEGA_TEST_SECURITY`` in the environment all of them speak TLS, ask for users or both, and this process and
    those that it starts are an operator's. ``as_is``: why this one is as its options say, whatever the suite is.
    ``environment``: further settings of its services.
    """
    kind = "" if as_is else security_of_suite()
    if "tls" in kind:
        # By name, as the PyPI client knows no certificates of addresses.
        options = {"tls": True, "host": "localhost", **options}
    standalone = AuthenticatingStandalone if "auth" in kind else StandaloneProcess
    cluster = standalone(folder, **options)
    try:
        cluster.start({**environment})
        with clients_environment(kind):
            if "tls" in kind:
                trust(cluster.ca_file)
            yield cluster
    except BaseException:
        print(cluster.log_tail())
        raise
    finally:
        cluster.stop()


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
