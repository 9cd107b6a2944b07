"""Defines the keys and payloads under which segment stores and controllers register in the control plane oracle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from pravega_common.errors import DataCorruption
from pravega_common.services.cluster.store_load import StoreLoad
from pravega_common.services.problems import Problem

SEGMENT_STORE_KIND: Final = "segment-store"
"""Lease kind of a segment store; the member id is the store's id, as in the assignment."""
CONTROLLER_KIND: Final = "controller"
"""Lease kind of a controller; the member id is fresh at every start."""
CONTAINER_COUNT_KEY: Final = "containers"
"""Constant: the number of containers, in decimal."""
ASSIGNMENT_LEADER_ROLE: Final = "assignment"
failure_reasons_bytes_max: Final = 16 * 1024
"""Bytes of JSON of the errors that travel with a lease: a store of many failed containers must be able to renew it."""
failed_containers_max: Final = 1_000
"""Failed containers that travel with a lease, for the same reason; the others do when those run again."""
problems_max: Final = 20
"""Problems that travel with a lease, so that its size has a limit; there are fewer kinds."""

_separator_bytes: Final = len(", ")


@dataclass(frozen=True, slots=True)
class Member:
    """A live process: where it is reached, and which of its starts this is.

    ``failed_containers``: containers of a store that stopped by themselves and wait to be assigned again, each with the
    assignment's version under which it failed.
    """

    host: str
    port: int
    incarnation: str = ""
    failed_containers: tuple[tuple[int, int], ...] = ()
    failure_reasons: tuple[tuple[int, str], ...] = ()
    """The errors of these containers, which a controller logs: of the first ones, as far as they fit a lease."""
    tls: bool = False
    """Whether its port speaks TLS. A member without has no such key, as before there was one."""
    load: StoreLoad | None = None
    """The work of a store when it renewed its lease; None of a controller, and of a store of an older version."""
    problems: tuple[Problem, ...] = ()
    """The problems that a store's health named when it renewed its lease; none of a store of an older version."""

    def to_payload(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "port": self.port,
            "incarnation": self.incarnation,
            "failed_containers": [list(item) for item in self.failed_containers[:failed_containers_max]],
            "failure_reasons": _that_fit(self.failure_reasons),
            **({"tls": True} if self.tls else {}),
            **({} if self.load is None else {"load": self.load.to_payload()}),
            **({"problems": [one.to_json() for one in self.problems[:problems_max]]} if self.problems else {}),
        }

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Member:
        try:
            failed = tuple(
                (int(container), int(version)) for container, version in payload.get("failed_containers", ())
            )
            reasons = tuple((int(container), str(text)) for container, text in payload.get("failure_reasons", ()))
            incarnation = str(payload.get("incarnation", ""))
            speaks_tls = bool(payload.get("tls", False))
            load = StoreLoad.from_payload(payload["load"]) if "load" in payload else None
            problems = tuple(Problem.from_json(one) for one in payload.get("problems", ()))
            host, port = str(payload["host"]), int(payload["port"])
            return cls(host, port, incarnation, failed, reasons, speaks_tls, load, problems)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataCorruption(f"membership payload {payload!r} is not one: {error}") from error


def _that_fit(reasons: Sequence[tuple[int, str]]) -> list[list[int | str]]:
    """The first reasons, up to the limit of their bytes."""
    ends = accumulate(len(json.dumps(reason)) + _separator_bytes for reason in reasons)
    return [list(reason) for reason, end in zip(reasons, ends, strict=True) if end <= failure_reasons_bytes_max]
