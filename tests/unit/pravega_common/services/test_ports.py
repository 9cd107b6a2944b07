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

HOST = "127.0.0.1"


def test_adjacent_and_below_outbound_ports() -> None:
    found = free_ports(HOST, 5)
    assert found == list(range(found[0], found[0] + 5))
    assert port_min <= found[0]
    assert found[-1] < outbound_port_min()


def test_a_taken_port_is_not_given() -> None:
    port = _chosen_elsewhere(7)
    with socket.create_server((HOST, port)):
        (other,) = free_ports(HOST, 1, choose=random.Random(7))
    assert other != port


def test_a_port_is_given_once() -> None:
    """Its server may not listen yet, or start again; a choice in another process found it free then."""
    (port,) = free_ports(HOST, 1, choose=random.Random(9))
    assert free_ports(HOST, 1, choose=random.Random(9)) != [port]


def test_a_port_is_not_given_to_another_process() -> None:
    (port,) = free_ports(HOST, 1, choose=random.Random(10))
    assert _chosen_elsewhere(10) != port


def test_a_claim_ends_behind_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(HOST, 1, choose=random.Random(11))
    monkeypatch.setattr(ports, "claimed_ports_max", 3)
    for _ in range(3):
        free_ports(HOST, 1)
    assert _chosen_elsewhere(11) == port


def _chosen_elsewhere(seed: int) -> int:
    """The port that a process of its own is given by the same choices."""
    program = (
        f"import random; from {ports.__name__} import *; print(*free_ports('{HOST}', 1, choose=random.Random({seed})))"
    )
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


def test_a_reserved_port_is_not_given() -> None:
    port = _chosen_elsewhere(8)
    assert free_ports(HOST, 1, besides=[port], choose=random.Random(8)) != [port]


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
