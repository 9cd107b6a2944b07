"""Checks ports for servers: free, adjacent, and out of the way of outbound connections."""

from __future__ import annotations

import random
import socket
import subprocess
import sys

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.services import ports
from pravega_common.services.ports import free_ports, outbound_port_min, port_min
from tests.support.eventually import eventually_blocking

HOST = "127.0.0.1"


@pytest.fixture
def seed() -> int:
    """Another one each time: runs beside each other would choose the same ports by it."""
    return random.randrange(1 << 32)


def test_adjacent_and_below_outbound_ports() -> None:
    found = free_ports(HOST, 5)
    assert found == list(range(found[0], found[0] + 5))
    assert port_min <= found[0]
    assert found[-1] < outbound_port_min()


def test_a_taken_port_is_not_given(seed: int) -> None:
    port = _chosen_elsewhere(seed)
    with socket.create_server((HOST, port)):
        (other,) = free_ports(HOST, 1, choose=random.Random(seed))
    assert other != port


def test_a_port_is_given_once(seed: int) -> None:
    """Its server may not listen yet, or start again; a choice in another process found it free then."""
    (port,) = free_ports(HOST, 1, choose=random.Random(seed))
    assert free_ports(HOST, 1, choose=random.Random(seed)) != [port]


def test_a_port_is_not_given_to_another_process(seed: int) -> None:
    (port,) = free_ports(HOST, 1, choose=random.Random(seed))
    assert _chosen_elsewhere(seed) != port


def test_a_claim_ends_behind_many_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not those of other tests, which would end, too, and may be of the first ports that the seed chooses.
    monkeypatch.setattr(ports, "_claims", ports._Claims())
    monkeypatch.setattr(ports, "claimed_ports_max", 3)
    (port,) = free_ports(HOST, 1, choose=random.Random(seed))
    for _ in range(3):
        free_ports(HOST, 1)
    eventually_blocking(lambda: _chosen_elsewhere(seed) == port, "the port is given elsewhere")


def _chosen_elsewhere(seed: int) -> int:
    """The port that a process of its own is given by the same choices."""
    program = (
        f"import random; from {ports.__name__} import *; print(*free_ports('{HOST}', 1, choose=random.Random({seed})))"
    )
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


def test_a_reserved_port_is_not_given(seed: int) -> None:
    port = _chosen_elsewhere(seed)
    assert free_ports(HOST, 1, besides=[port], choose=random.Random(seed)) != [port]


def test_no_ports_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_are_free", lambda host, numbers: False)
    with pytest.raises(ConfigurationError, match="2 free ports in a row were not found"):
        free_ports(HOST, 2)


def test_a_system_that_leaves_no_room_below(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path_factory.mktemp("proc") / "range"
    monkeypatch.setattr(ports, "_OUTBOUND_RANGE", told)
    assert outbound_port_min() == ports.outbound_port_min_default
    told.write_text("1024\t65535\n")
    assert outbound_port_min() == ports.outbound_port_min_default
    told.write_text("40000\t65535\n")
    assert outbound_port_min() == 40_000
