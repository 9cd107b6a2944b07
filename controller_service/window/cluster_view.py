"""Tells how the cluster is: problems with their remedies, stores with their containers, controllers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from controller_service.cluster.placement import Placement
from controller_service.window.answers import ClusterView, ContainerFailure, FoundProblem, StoreLoadView, StoreView
from controller_service.window.parts import WindowParts, look_time_max_s, within
from pravega_common.errors import PravegaError
from pravega_common.runtime.joined import both_ended
from pravega_common.services.cluster.registry import Member
from pravega_common.version import __version__

stores_max: Final = 500
"""Stores that an answer lists; containers are as many as the cluster was started with."""
problems_max: Final = 100
"""Problems of stores that an answer lists, those that stop the work first."""


async def cluster_view(parts: WindowParts) -> ClusterView:
    """Costs two looks at the control plane oracle; everything else this controller knows."""
    _, (controllers, unknown) = await both_ended(_look_again(parts), _controllers(parts))
    placement = parts.placement()
    status, services = parts.status()
    return ClusterView(
        at_ms=parts.clock.wall_ms(),
        version=__version__,
        status=status,
        problems=_problems(parts, placement),
        services=dict(services),
        assignment_version=placement.version,
        container_count=placement.container_count,
        ownerless=_ownerless(placement),
        stores=[_store(placement, name, member) for name, member in sorted(placement.stores.items())[:stores_max]],
        stores_left_out=max(0, len(placement.stores) - stores_max),
        controllers=controllers,
        unknown=unknown,
    )


async def _look_again(parts: WindowParts) -> None:
    """If the oracle does not answer, what was known before is shown; figures of stores carry their time."""
    with contextlib.suppress(PravegaError):
        await within(look_time_max_s, parts.look_again(), "the control plane oracle")


async def _controllers(parts: WindowParts) -> tuple[list[str] | None, str | None]:
    """The live controllers, or why they are not known."""
    try:
        live = await within(look_time_max_s, parts.controllers(), "the control plane oracle")
    except PravegaError as error:
        return None, f"The controllers are not known now: {error}."
    return sorted(f"{host}:{port}" for host, port in live), None


def _problems(parts: WindowParts, placement: Placement) -> list[FoundProblem]:
    """The controller's own, and those that stores sent with their leases, some seconds old."""
    of_stores = sorted(_of_stores(placement), key=lambda problem: not problem.stops_work)[:problems_max]
    own = (FoundProblem(**one.to_json()) for one in parts.problems())
    return sorted((*own, *of_stores), key=lambda problem: not problem.stops_work)


def _of_stores(placement: Placement) -> Iterator[FoundProblem]:
    for name, member in sorted(placement.stores.items()):
        for one in member.problems:
            yield FoundProblem(**{**one.to_json(), "text": f"store {name}: {one.text}"})


def _store(placement: Placement, name: str, member: Member) -> StoreView:
    reasons: Mapping[int, str] = dict(member.failure_reasons)
    return StoreView(
        id=name,
        address=f"{member.host}:{member.port}",
        containers=sorted(number for number, owner in placement.owners.items() if owner == name),
        failures=[
            ContainerFailure(container=number, reason=reasons.get(number)) for number, _ in member.failed_containers
        ],
        load=None if member.load is None else StoreLoadView(**member.load.to_payload()),
    )


def _ownerless(placement: Placement) -> list[int]:
    return [
        number for number in range(placement.container_count) if placement.owners.get(number) not in placement.stores
    ]
