"""Tests where the authority of a standalone is found, and what is said of streams and scopes that are absent."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from pravega_common.errors import AccessDenied, ScopeNotFound, StreamNotFound
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.application import make_application
from pravega_spark.backfill import runner
from pravega_spark.commands import scope
from pravega_spark.commands.connection import authority_of, cluster_address, created_with_scope, existing_stream
from pravega_streams.client import StreamClient
from pravega_streams.controller.address import CA_FILE_VARIABLE
from tests.support.certificates import Authority

HERE = "tls://localhost:9090,127.0.0.1:9091"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The certificate of a standalone in the default folder."""
    monkeypatch.delenv(CA_FILE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = tmp_path / "pravega-spark" / "tls" / "ca.pem"
    file.parent.mkdir(parents=True)
    file.write_bytes(Path(Authority(tmp_path / "authority").file).read_bytes())
    return file


def test_a_command_and_a_backfill_find_it(made: Path) -> None:
    assert authority_of(HERE) == str(made)
    address = cluster_address(HERE)
    assert address.tls is not None and address.tls.ca_pem == made.read_text()
    assert runner.cluster_options(HERE) == {"controller": HERE, "ca_file": str(made)}


@pytest.mark.parametrize("controller", ["tcp://localhost:9090", "localhost", "tls://example.org:9090"])
def test_other_clusters_have_others(made: Path, controller: str) -> None:
    assert authority_of(controller) == ""
    assert runner.cluster_options(controller) == {"controller": controller}


def test_who_names_one_has_that(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CA_FILE_VARIABLE, str(made))
    made.rename(tmp_path / "other.pem")
    monkeypatch.setenv(CA_FILE_VARIABLE, str(tmp_path / "other.pem"))
    assert authority_of(HERE) == ""


def test_without_a_standalone_there_is_none(made: Path) -> None:
    made.unlink()
    assert authority_of(HERE) == ""


class _Empty:
    """A cluster without scopes and streams, as a client and as its controller."""

    @property
    def controller(self) -> _Empty:
        return self

    def stream_exists(self, scope: str, stream: str) -> bool:
        return False

    def scope_exists(self, scope: str) -> bool:
        return False


class _MakerOfStreams:
    """A cluster of one scope at most, for who may make streams there, as a client and as its controller."""

    def __init__(self, *, has_scope: bool) -> None:
        self.has_scope = has_scope
        self.made: list[str] = []

    @property
    def controller(self) -> _MakerOfStreams:
        return self

    def create_scope(self, scope: str) -> bool:
        if self.has_scope:
            raise AccessDenied("user maker has no READ_UPDATE on prn::/")
        self.has_scope = True
        return True

    def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        if not self.has_scope:
            raise ScopeNotFound.of(scope)
        self.made.append(stream)
        return True


@pytest.mark.parametrize("has_scope", [True, False])
def test_a_stream_needs_no_permission_on_scopes_where_its_scope_is_there(has_scope: bool) -> None:
    cluster = _MakerOfStreams(has_scope=has_scope)
    assert created_with_scope(cast(StreamClient, cluster), "s", "t", StreamConfiguration())
    assert cluster.made == ["t"]


def test_only_who_writes_to_an_absent_stream_is_told_to_create_it() -> None:
    client = cast(StreamClient, _Empty())
    with pytest.raises(StreamNotFound, match=r"'s/t' does not exist; create it with: .* stream create s/t$"):
        existing_stream(client, "s/t", for_writing=True)
    with pytest.raises(StreamNotFound, match=r"'s/t' does not exist; see pravega-spark stream list$"):
        existing_stream(client, "s/t")


def test_who_names_an_absent_scope_is_told_where_scopes_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "connected", lambda controller: nullcontext(_Empty()))
    for words in (["scope", "info", "s"], ["scope", "quota", "s", "--none"]):
        refused = CliRunner().invoke(make_application(words), words).exception
        assert isinstance(refused, ScopeNotFound)
        assert str(refused) == "scope 's' does not exist; see pravega-spark scope list"
