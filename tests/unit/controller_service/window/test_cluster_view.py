"""The view of the cluster has problems first, every container once, and says what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from controller_service.cluster.placement import Placement
from controller_service.service import Controller
from controller_service.window.cluster_view import cluster_view, problems_max
from pravega_common.errors import Unavailable
from pravega_common.services.cluster.registry import Member
from pravega_common.services.cluster.store_load import StoreLoad
from pravega_common.services.problems import Problem
from pravega_common.version import __version__
from tests.support.controller_in_memory import ControllerParts


async def test_containers_are_shown_at_their_stores(controller: Controller) -> None:
    failed = Member("host-b", 2, failed_containers=((3, 9),), failure_reasons=((3, "Tier 1 is full"),))
    placement = Placement(9, 5, {0: "a", 1: "a", 2: "dead", 4: "b"}, {"b": failed, "a": Member("host-a", 1)})
    view = await cluster_view(replace(controller.window_parts(), placement=lambda: placement))
    assert [(store.id, store.address, store.containers) for store in view.stores] == [
        ("a", "host-a:1", [0, 1]),
        ("b", "host-b:2", [4]),
    ]
    assert view.ownerless == [2, 3] and view.container_count == 5 and view.assignment_version == 9
    assert [(one.container, one.reason) for one in view.stores[1].failures] == [(3, "Tier 1 is full")]
    assert (view.version, view.status, view.stores_left_out) == (__version__, "UP", 0)


async def test_problems_have_their_remedies(parts: ControllerParts, controller: Controller) -> None:
    parts.hosts.ownerless = (2,)
    view = await cluster_view(controller.window_parts())
    assert view.problems[0].code == "containers-without-store" and view.problems[0].stops_work
    assert view.problems[0].remedy.startswith("start segment stores")
    assert view.status == "DOWN" and view.ownerless == [2]


async def test_problems_of_stores_are_shown_beside_the_controllers_own(
    parts: ControllerParts, controller: Controller
) -> None:
    parts.hosts.ownerless = (2,)
    damaged = Problem("segments-damaged", "1 segments are damaged", "restore the objects", stops_work=False)
    gone = Problem("tier2-failing", "all calls fail", "bring it back", stops_work=True)
    members = {"b": Member("h", 2, problems=(gone,)), "a": Member("h", 1, problems=(damaged,) * problems_max)}
    placement = Placement(9, 1, {0: "a"}, members)
    view = await cluster_view(replace(controller.window_parts(), placement=lambda: placement))
    assert [(one.code, one.text) for one in view.problems[:3]] == [
        ("containers-without-store", "containers 2 have no live segment store"),
        ("tier2-failing", "store b: all calls fail"),
        ("segments-damaged", "store a: 1 segments are damaged"),
    ]
    assert view.problems[1].remedy == "bring it back" and view.problems[1].stops_work
    assert len(view.problems) == 1 + problems_max


async def test_an_oracle_that_is_away_leaves_the_rest(controller: Controller) -> None:
    async def controllers() -> Sequence[tuple[str, int]]:
        raise Unavailable("no oracle")

    view = await cluster_view(replace(controller.window_parts(), controllers=controllers))
    assert view.controllers is None and view.unknown == "The controllers are not known now: no oracle."
    assert [store.id for store in view.stores] == ["store"]


async def test_what_stores_told_with_their_leases(parts: ControllerParts, controller: Controller) -> None:
    assert (await cluster_view(controller.window_parts())).stores[0].load is None
    parts.hosts.load = StoreLoad(7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    told = (await cluster_view(controller.window_parts())).stores[0].load
    assert told is not None and told.model_dump() == parts.hosts.load.to_payload()


async def test_an_oracle_that_is_away_leaves_what_stores_told_before(
    parts: ControllerParts, controller: Controller
) -> None:
    async def look_again() -> None:
        raise Unavailable("no oracle")

    parts.hosts.load = StoreLoad(7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    view = await cluster_view(replace(controller.window_parts(), look_again=look_again))
    assert view.stores[0].load is not None and view.stores[0].load.at_ms == 7
