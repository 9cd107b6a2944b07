"""A store whose port another program has says so in one sentence."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.tls import ServerTls
from segment_service.host.listener import WireServer
from tests.support.certificates import Authority
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore


@pytest.mark.parametrize("security", ["plain", "tls"])
async def test_a_taken_port_is_named_with_its_setting(security: str, tmp_path: Path) -> None:
    tls = ServerTls(Authority(tmp_path / "ca").issue().section, SystemClock()).context if security == "tls" else None
    store = InMemorySegmentStore()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        server = WireServer(store, InMemoryTableStore(store), store, host="127.0.0.1", port=port, tls=tls)
        with pytest.raises(ConfigurationError, match=rf"store.listen = '127\.0\.0\.1:{port}': cannot listen there"):
            await server.start()
