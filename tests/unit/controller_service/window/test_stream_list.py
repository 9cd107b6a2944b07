"""The list of streams goes through all scopes page by page, and finds names."""

from __future__ import annotations

import base64

import pytest

from controller_service.service import Controller
from controller_service.window import stream_list
from controller_service.window.answers import StreamRow
from controller_service.window.parts import WindowParts
from controller_service.window.stream_list import Wanted, list_streams
from pravega_common.errors import InvalidArgument, ScopeNotFound
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from tests.support.controller_in_memory import ControllerParts


@pytest.fixture
def window(controller: Controller) -> WindowParts:
    return controller.window_parts()


async def fill(controller: Controller, scope: str, *streams: str, tags: tuple[str, ...] = ()) -> None:
    await controller.store.create_scope(scope)
    for stream in streams:
        configuration = StreamConfiguration(ScalingPolicy.fixed(2), tags=tags)
        await controller.parts.workflows.create.create(scope, stream, configuration)


async def everything(window: WindowParts, wanted: Wanted, token: str = "") -> tuple[list[StreamRow], int]:
    """All rows, and the number of pages."""
    rows: list[StreamRow] = []
    pages = 0
    while True:
        page = await list_streams(window, wanted, token)
        assert len(page.streams) <= stream_list.rows_max
        assert page.names_looked_at <= stream_list.names_looked_at_max
        rows += page.streams
        pages += 1
        if page.next is None:
            return rows, pages
        token = page.next


async def test_all_streams_come_once_whatever_the_pages(
    controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scope in ("a", "b", "c"):
        await fill(controller, scope, *(f"stream-{number}" for number in range(7)))
    await controller.store.create_scope("empty")
    for rows_max in (1, 2, 3, 5, 100):
        for chunk in (1, 3, 250):
            monkeypatch.setattr(stream_list, "rows_max", rows_max)
            monkeypatch.setattr(stream_list, "chunk_names", chunk)
            monkeypatch.setattr(stream_list, "scopes_chunk", chunk)
            rows, _ = await everything(window, Wanted())
            names = [f"{row.scope}/{row.stream}" for row in rows]
            assert len(names) == len(set(names)) == 21, (rows_max, chunk)


async def remove(controller: Controller, scope: str, *streams: str) -> None:
    for stream in streams:
        entry = await controller.store.entry(scope, stream)
        assert entry is not None
        await controller.store.remove_stream(scope, stream, entry.stream_id)


@pytest.mark.parametrize("gone", [("n0",), ("n4",), ("n3", "n4"), ("n0", "n1", "n2", "n3", "n4")])
async def test_streams_that_go_between_two_pages_hide_no_others(
    controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch, gone: tuple[str, ...]
) -> None:
    monkeypatch.setattr(stream_list, "rows_max", 5)
    await fill(controller, "s", *(f"n{number}" for number in range(10)))
    wanted = Wanted("/n")
    first = await list_streams(window, wanted)
    assert [row.stream for row in first.streams] == [f"n{number}" for number in range(5)] and first.next
    await remove(controller, "s", *gone)
    second = await list_streams(window, wanted, first.next)
    assert [row.stream for row in second.streams] == [f"n{number}" for number in range(5, 10)]


async def test_streams_that_come_between_two_pages_repeat_no_others(
    controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_list, "rows_max", 5)
    await fill(controller, "s", *(f"n{number}" for number in range(10)))
    wanted = Wanted("/n")
    first = await list_streams(window, wanted)
    assert first.next
    await fill(controller, "s", "n00", "n33")
    second = await list_streams(window, wanted, first.next)
    assert [row.stream for row in second.streams] == [f"n{number}" for number in range(5, 10)]


async def test_scopes_that_come_and_go_between_two_pages_move_no_streams(
    controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_list, "rows_max", 2)
    await controller.store.create_scope("a")
    await fill(controller, "b", "n0", "n1", "n2")
    await fill(controller, "c", "n3")
    first = await list_streams(window, Wanted("/n"))
    assert [row.stream for row in first.streams] == ["n0", "n1"] and first.next
    record = await controller.store.scope("a")
    assert record is not None
    await controller.store.remove_scope("a", record.scope_id)
    second = await list_streams(window, Wanted("/n"), first.next)
    assert [row.stream for row in second.streams] == ["n2", "n3"]
    await fill(controller, "a", "late")
    again = await list_streams(window, Wanted("/n"), first.next)
    assert [row.stream for row in again.streams] == ["n2", "n3"]


@pytest.mark.parametrize("gone", [("N0",), ("N4",), ("N0", "N1", "N2", "N3", "N4"), ()])
async def test_streams_that_come_and_go_during_an_answer_hide_no_others(
    controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch, gone: tuple[str, ...]
) -> None:
    """Between the page that is shown and the look for its end; without ``gone`` one comes in the midst of them.
    Capitals lie before the names of mark streams."""
    monkeypatch.setattr(stream_list, "rows_max", 5)
    await fill(controller, "s", *(f"N{number}" for number in range(10)))
    read, reads = controller.store.list_streams, list[int]()

    async def changing(scope: str, token: bytes, count_max: int) -> object:
        if scope == "s":
            reads.append(count_max)
            if len(reads) == 2:
                await (remove(controller, "s", *gone) if gone else fill(controller, "s", "N33"))
        return await read(scope, token, count_max)

    wanted = Wanted("s/n", "s")
    monkeypatch.setattr(controller.store, "list_streams", changing)
    first = await list_streams(window, wanted)
    assert reads[:2] == [stream_list.chunk_names, 5] and len(reads) <= 1 + stream_list.place_attempts_max
    assert first.next
    rest, _ = await everything(window, wanted, first.next)
    others = [] if gone else ["N33", "N4"]  # the one behind it is shown once more
    assert [row.stream for row in rest] == [*others, *(f"N{number}" for number in range(5, 10))]


async def test_a_row_tells_what_is_on_record(controller: Controller, window: WindowParts) -> None:
    await fill(controller, "shop", "orders", tags=("gold",))
    [row] = (await list_streams(window, Wanted())).streams
    assert (row.scope, row.stream, row.tags, row.is_internal) == ("shop", "orders", ["gold"], False)
    assert (row.state, row.epoch, row.segment_count) == ("active", 0, 2)
    assert row.scaling == "fixed, 2 at the start or more" and row.retention == "everything is kept"


async def test_a_search_is_bounded_and_goes_on(
    controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(controller, "a", *(f"noise-{number}" for number in range(20)), "Wanted")
    monkeypatch.setattr(stream_list, "names_looked_at_max", 10)
    rows, pages = await everything(window, Wanted("wanted"))
    assert [row.stream for row in rows] == ["Wanted"] and pages > 2
    assert not (await everything(window, Wanted("nothing like it")))[0]


async def test_scopes_without_streams_are_bounded_too(
    controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await controller.store.create_scope(f"empty-{number:02}")
    await fill(controller, "full", "last")
    monkeypatch.setattr(stream_list, "scopes_looked_at_max", 10)
    for chunk in (3, 10, 250):
        monkeypatch.setattr(stream_list, "scopes_chunk", chunk)
        for wanted in (Wanted(), Wanted("last")):
            rows, pages = await everything(window, wanted)
            assert [row.stream for row in rows] == ["last"] and pages == 4, chunk


async def test_internal_streams_come_when_asked_for(controller: Controller, window: WindowParts) -> None:
    await fill(controller, "a", "one")
    assert [row.stream for row in (await list_streams(window, Wanted())).streams] == ["one"]
    rows = (await list_streams(window, Wanted(internal=True))).streams
    assert {row.stream for row in rows if row.scope == "a"} == {"one", "_MARKone"}


async def test_one_scope_alone(controller: Controller, window: WindowParts) -> None:
    await fill(controller, "a", "one")
    await fill(controller, "b", "two")
    assert [row.stream for row in (await list_streams(window, Wanted(scope="b"))).streams] == ["two"]
    with pytest.raises(ScopeNotFound):
        await list_streams(window, Wanted(scope="none"))


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "token",
    [
        *("x", "e30", "eyJzY29wZSI6LTF9", "WzFd", "eyJ4IjoxfQ=="),
        *(encoded(text) for text in ('{"scope":1.5}', '{"skip":1e2}', '{"scope":true}', "[" * 3_000)),
        *(encoded(text) for text in ('{"scope":null}', '{"names":null}', '{"scopes":0}', '{"scope":"\\ud800"}')),
        encoded('{"scopes": "", "scope": 0, "names": "", "skip": 3}'),
    ],
)
async def test_a_token_that_is_none_is_refused(window: WindowParts, token: str) -> None:
    with pytest.raises(InvalidArgument, match="token"):
        await list_streams(window, Wanted(), token)


async def test_a_page_asks_for_its_own_rows_alone(parts: ControllerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = parts.controller()
    await controller.start()
    try:
        await fill(controller, "a", *(f"s{number}" for number in range(30)))
        monkeypatch.setattr(stream_list, "rows_max", 5)
        opened: list[str] = []
        original = controller.store.open

        async def counted(scope: str, stream: str, *keys: object) -> object:
            opened.append(stream)
            return await original(scope, stream, *keys)  # type: ignore[arg-type]

        monkeypatch.setattr(controller.store, "open", counted)
        page = await list_streams(controller.window_parts(), Wanted())
        assert sorted(opened) == sorted(row.stream for row in page.streams) and len(opened) == 5
    finally:
        await controller.stop()
