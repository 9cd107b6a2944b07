"""The window shows streams, their key space over their epochs, and what it does not know, in a real browser."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest

from controller_service.service import Controller
from controller_service.store.records import StreamEntry
from controller_service.store.scope_store import STREAMS_LIST
from controller_service.store.serializer import encode
from controller_service.store.versioned_store import ABSENT
from controller_service.window import looks
from pravega_common.errors import Unavailable
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.segments import SegmentInfo
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.services.cluster.store_load import StoreLoad
from tests.support.browser import Browser
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.fakes.revisioned_segments import InMemoryRevisionedSegments
from tests.support.fakes.segment_access import InMemorySegmentAccess
from tests.support.history import stream_with_history
from tests.support.subscriptions import Subscriptions

NASTY: Final = "<script>document.title='owned'<script>"
"""What no client can name a stream, and a store's records may have all the same."""
PRESS: Final = "[...document.querySelectorAll('button')].find((one) => one.textContent === arguments[0]).click()"
ENTER, ESCAPE, LEFT, UP = "\ue007", "\ue00c", "\ue012", "\ue013"


class Stores(InMemorySegmentAccess):
    """Segments in memory that a test can take away."""

    are_down = False

    async def infos_found(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        if self.are_down:
            raise Unavailable("the segment store at 127.0.0.1:1 does not answer")
        return await super().infos_found(segments)


@pytest.fixture
def stores() -> Stores:
    return Stores()


@pytest.fixture
def parts(stores: Stores) -> ControllerParts:
    return ControllerParts(access=stores, revisions=InMemoryRevisionedSegments(stores))


@pytest.fixture
async def controller(parts: ControllerParts) -> AsyncIterator[Controller]:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    yield controller
    await controller.stop()


@pytest.fixture
def page(controller: Controller) -> str:
    assert controller.rest is not None
    return f"http://127.0.0.1:{controller.rest.port}/"


async def create(controller: Controller, scope: str, stream: str, segments: int = 1) -> None:
    await controller.store.create_scope(scope)
    configuration = StreamConfiguration(ScalingPolicy.fixed(segments))
    await controller.parts.workflows.create.create(scope, stream, configuration)


async def write(stores: Stores, scope: str, stream: str, amount: int) -> None:
    for name, segment in stores.segments.items():
        if name.startswith(f"{scope}/{stream}/") and not segment.is_sealed:
            segment.length += amount


async def until(browser: Browser, selector: str, count: int) -> None:
    async def there() -> bool:
        return await browser.count(selector) == count

    await eventually(there, f"{count} of {selector}")


# ---- streams ---------------------------------------------------------------------------------------------------------


async def test_an_empty_cluster_says_what_to_do(page: str, browser: Browser) -> None:
    await browser.open(page)
    await browser.sees("There are no streams yet.")
    await browser.sees("pravega-spark stream create")


async def test_a_thousand_streams_are_paged_and_searched(controller: Controller, page: str, browser: Browser) -> None:
    for scope in range(10):
        await controller.store.create_scope(f"scope-{scope}")
    made = (create(controller, f"scope-{number % 10}", f"stream-{number:04}") for number in range(1_000))
    await asyncio.gather(*made, return_exceptions=False)
    await browser.open(page)
    await until(browser, "tbody tr", 50)
    first = await browser.text("tbody tr")
    await browser.run(PRESS, "More →")
    await eventually(lambda: differs(browser, first), "another page")
    await until(browser, "tbody tr", 50)
    await browser.run(PRESS, "← Before")
    await browser.sees(first.split("\t")[0], "tbody tr")
    await browser.type("input[type=search]", "stream-0777")
    await until(browser, "tbody tr", 1)
    await browser.sees("scope-7/stream-0777")
    await browser.click("tbody a")
    await browser.sees("Keys over epochs")


async def differs(browser: Browser, text: str) -> bool:
    return await browser.text("tbody tr") not in ("", text)


async def test_a_further_page_that_is_refused_is_said_and_can_be_asked_again(
    controller: Controller, page: str, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    await controller.store.create_scope("shop")
    await asyncio.gather(*(create(controller, "shop", f"stream-{number:02}") for number in range(60)))
    await browser.open(page)
    await until(browser, "tbody tr", 50)
    first = await browser.text("tbody tr")

    async def refused(*_: object) -> None:
        raise Unavailable("no store owns the container now")

    with monkeypatch.context() as stores_are_away:
        stores_are_away.setattr(controller.store, "list_scopes", refused)
        stores_are_away.setattr(controller.store, "list_streams", refused)
        await browser.run(PRESS, "More →")
        await browser.sees("No store owns the container now.", "[role=alert]")
    assert await browser.count("tbody tr") == 0, "nobody follows their rates any more"
    await browser.run(PRESS, "Try again")
    await until(browser, "tbody tr", 10)
    assert await differs(browser, first)
    await browser.run(PRESS, "← Before")
    await browser.sees(first.split("\t")[0], "tbody tr")
    assert all("500" in problem for problem in await browser.problems())


@pytest.mark.parametrize("address", ["#/stream/%E0%A4%A", "#/constructor", "#/nowhere"])
async def test_an_address_that_names_no_page(page: str, address: str, browser: Browser) -> None:
    await browser.open(page)
    await browser.sees("There are no streams yet.")
    await browser.open(f"{page}{address}")
    await browser.sees("There is no such page.")


async def test_rates_are_live(controller: Controller, stores: Stores, page: str, browser: Browser) -> None:
    await create(controller, "shop", "orders", 2)
    await browser.open(page)
    await browser.sees("shop/orders")
    await browser.sees("0 B/s")

    async def is_written() -> bool:
        await write(stores, "shop", "orders", 100_000)
        return "iB/s" in await browser.text("tbody")

    await eventually(is_written, "a rate")


@pytest.mark.parametrize("wrong_by_ms", [-3 * 3_600_000, 3 * 3_600_000])
async def test_ages_are_right_in_a_browser_with_a_wrong_clock(
    controller: Controller, page: str, wrong_by_ms: int, browser: Browser
) -> None:
    await create(controller, "shop", "orders")
    await controller.transactions.create("shop", "orders", 10_000)
    await browser.open(f"{page}docs")
    # Into a page that is loaded and whose own script has ended, so that no other script runs before or beside it.
    await browser.sees("Version", "#about")
    await browser.run(
        f"const now = Date.now; Date.now = () => now() + {wrong_by_ms};"
        "document.body.innerHTML = '<span id=liveness></span><main id=main></main>'; import('/window/main.js')"
    )
    ages = r"\b\d{1,3} m?s ago"
    await eventually(lambda: matches(browser, ages, "tbody"), "the age of the stream")
    await browser.run("location.hash = '#/stream/shop/orders'")
    await eventually(lambda: matches(browser, r"1 oldest \d{1,3} m?s\b", ".tiles"), "the age of the transaction")


async def matches(browser: Browser, pattern: str, selector: str) -> bool:
    return re.search(pattern, await browser.text(selector)) is not None


async def test_no_name_becomes_markup(controller: Controller, page: str, browser: Browser) -> None:
    await create(controller, "shop", "orders")
    entry = StreamEntry("0" * 32, 1_000, tags=("<img src=x onerror=document.title='owned'>",))
    table = await controller.store.list_table("shop", STREAMS_LIST)
    await controller.store.tables.put(table, NASTY, encode(entry), ABSENT)
    await browser.open(page)
    await browser.sees(NASTY)
    await browser.sees("<img src=x")
    assert await browser.count("main script, main img") == 0
    assert await browser.run("return document.title") == "Streams"


# ---- the cluster -----------------------------------------------------------------------------------------------------


async def test_problems_come_first_with_their_remedies(
    controller: Controller, parts: ControllerParts, page: str, browser: Browser
) -> None:
    await browser.open(page)
    await browser.sees("well", ".tiles")
    parts.hosts.ownerless = (1, 2)
    await browser.sees("Containers 1, 2 have no live segment store. To do: start segment stores", "p[role=alert]")
    await browser.sees("2 without a store", ".tiles")
    await browser.open(f"{page}#/cluster")
    await browser.sees("Containers 1, 2 have no live segment store")
    await browser.sees("None since this page was opened.")
    parts.hosts.ownerless = (2,)
    await browser.sees("Container 1\tno store\tstore")
    parts.hosts.ownerless = ()
    await eventually(lambda: lacks(browser, "p[role=alert]"), "no problem")
    await browser.sees("0–3")


def load_at(at_ms: int, written: int) -> StoreLoad:
    return StoreLoad(at_ms, written, 0, written, 1 << 20, 4 << 20, 900 << 20, 1000 << 20, 0, 64 << 20, 7)


async def test_the_work_and_the_fill_of_stores(parts: ControllerParts, page: str, browser: Browser) -> None:
    now_ms = parts.clock.wall_ms()
    parts.hosts.load = load_at(now_ms - 4000, 100 << 20)
    await browser.open(f"{page}#/cluster")
    await browser.sees("900 MiB of 1000 MiB", "main table")
    await browser.sees("90 %", ".tiles")
    assert "MiB/s" not in await browser.text("main table"), "a rate needs two leases"
    parts.hosts.load = load_at(now_ms, 140 << 20)
    await browser.sees("10.0 MiB/s", "main table")
    assert await browser.count('meter[aria-label="25 % waits for Tier 2"]') == 1
    parts.hosts.load = load_at(now_ms + 4000, 1 << 20)
    await eventually(lambda: lacks_text(browser, "MiB/s"), "no rate where a container took its count along")


async def lacks_text(browser: Browser, text: str) -> bool:
    return text not in await browser.text("main table")


async def lacks(browser: Browser, selector: str) -> bool:
    return await browser.count(selector) == 0


# ---- one stream ------------------------------------------------------------------------------------------------------


async def test_the_picture_of_a_stream(
    controller: Controller, parts: ControllerParts, stores: Stores, page: str, browser: Browser
) -> None:
    await stream_with_history(parts, controller, "shop", "orders", 4, 12)
    context = await controller.store.open("shop", "orders")
    cut = {segment.segment_id: 10 for segment in (await context.epoch(4)).segments}
    await controller.parts.workflows.truncate.truncate("r", "shop", "orders", cut)
    await browser.open(f"{page}#/stream/shop/orders")
    current = await context.current_epoch()
    await until(browser, "rect.segment.active[data-index]", len(current.segments))
    assert await browser.count("rect.segment.truncated[data-index]") > 0
    assert await browser.count("rect.segment.sealed[data-index]") > 0
    assert await browser.count("path.split") > 1 and await browser.count("path.merge") > 1
    assert "epochs 0 to 11" in str(await browser.run("return document.querySelector('svg[role]').ariaLabel"))
    await write(stores, "shop", "orders", 50_000)
    await eventually(lambda: has(browser, "rect.now"), "live rates")
    # A scaling is seen without a reload.
    middle = current.segments[0].key_start + (current.segments[0].key_end - current.segments[0].key_start) / 2
    ranges = [(current.segments[0].key_start, middle), (middle, current.segments[0].key_end)]
    to_seal = [current.segments[0].segment_id]
    await controller.parts.workflows.scale.start("shop", "orders", to_seal, ranges)
    await browser.sees("Epochs 0 to 12")
    await until(browser, "rect.segment.active[data-index]", len(current.segments) + 1)


async def has(browser: Browser, selector: str) -> bool:
    return await browser.count(selector) > 0


async def picture_with_focus(controller: Controller, parts: ControllerParts, page: str, browser: Browser) -> None:
    """Open the picture of a stream with 60 epochs, and let it take the keys that are pressed."""
    await stream_with_history(parts, controller, "shop", "orders", 4, 60)
    await browser.open(f"{page}#/stream/shop/orders")
    await eventually(lambda: has(browser, "rect.segment.active"), "the picture")
    await browser.run("document.querySelector('.picture svg').focus()")


async def test_the_keyboard_goes_through_the_picture(
    controller: Controller, parts: ControllerParts, page: str, browser: Browser
) -> None:
    await picture_with_focus(controller, parts, page, browser)
    await browser.press(LEFT, UP)
    await browser.sees("of epoch", ".chosen-text")
    assert await browser.count("rect.chosen") == 1
    await browser.press(ENTER)
    await browser.sees(", keys ", ".bar .small")
    await browser.press(ESCAPE)
    await browser.sees("Epochs 0 to 59. ", ".bar .small")


async def test_a_part_of_the_picture_learns_of_new_epochs(
    controller: Controller, parts: ControllerParts, page: str, browser: Browser
) -> None:
    await picture_with_focus(controller, parts, page, browser)
    await browser.press(LEFT, ENTER)
    await browser.sees("to 59", ".bar .small")
    newer = "return ![...document.querySelectorAll('button')].find((one) => one.textContent === 'Newer →').disabled"
    assert not await browser.run(newer)
    segment = (await (await controller.store.open("shop", "orders")).current_epoch()).segments[0]
    middle = segment.key_start + (segment.key_end - segment.key_start) / 2
    ranges = [(segment.key_start, middle), (middle, segment.key_end)]
    await controller.parts.workflows.scale.start("shop", "orders", [segment.segment_id], ranges)
    await eventually(lambda: browser.run(newer), "a way to the new epoch")
    await browser.sees("to 59", ".bar .small")


async def test_five_hundred_segments_and_two_hundred_epochs_stay_usable(
    controller: Controller, parts: ControllerParts, page: str, browser: Browser
) -> None:
    await stream_with_history(parts, controller, "shop", "big", 500, 200)
    await browser.open(f"{page}#/stream/shop/big")
    current = await (await controller.store.open("shop", "big")).current_epoch()
    await until(browser, "rect.segment.active[data-index]", len(current.segments))
    await browser.sees("Epochs 0 to 199")
    shown = await browser.count("rect.segment[data-index]")
    drag = [(400, 100), (700, 200)]
    steps = [{"type": "pointerMove", "origin": await centre(browser), "x": x - 550, "y": y - 200} for x, y in drag]
    pointer = {
        "type": "pointer",
        "id": "mouse",
        "actions": [steps[0], {"type": "pointerDown", "button": 0}, steps[1], {"type": "pointerUp", "button": 0}],
    }
    await browser.call("POST", "/actions", {"actions": [pointer]})
    await browser.sees(", keys ", ".bar .small")
    assert 0 < await browser.count("rect.segment[data-index]") < shown / 2


async def centre(browser: Browser) -> object:
    return await browser.run("return document.querySelector('.picture svg')")


async def test_stores_that_are_away_are_said_so(
    controller: Controller, stores: Stores, page: str, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.setattr(looks, "look_time_max_s", 0.2)
    await create(controller, "shop", "orders", 2)
    stores.are_down = True
    await browser.open(page)
    await browser.sees("not known")
    await browser.open(f"{page}#/stream/shop/orders")
    await browser.sees("The lengths of open segments are not known now")
    await browser.sees("127.0.0.1:1 does not answer")
    assert "0 B" not in await browser.text(".tiles")
    stores.are_down = False
    await browser.sees("B/s", ".tiles")


async def test_a_controller_that_is_gone_leaves_no_old_rates(
    controller: Controller, page: str, browser: Browser
) -> None:
    await create(controller, "shop", "orders")
    await browser.open(page)
    await browser.sees("0 B/s")
    assert controller.rest is not None
    await controller.rest.stop()
    await browser.sees("The controller does not answer", "p[role=alert]")
    await browser.sees("not known", "tbody")
    assert "B/s" not in await browser.text("tbody")
    await browser.open("about:blank")
    assert await browser.problems()


async def test_a_page_that_could_not_be_shown_is_tried_again(
    controller: Controller, page: str, monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    await create(controller, "shop", "orders")

    async def refused(*_: object) -> None:
        raise Unavailable("no store owns the container now")

    with monkeypatch.context() as stores_are_away:
        stores_are_away.setattr(controller.store, "open", refused)
        await browser.open(f"{page}#/stream/shop/orders")
        await browser.sees("No store owns the container now.")
        await browser.sees("It is tried again every few seconds.")
    await browser.sees("Keys over epochs")
    assert all("500" in problem for problem in await browser.problems())


async def test_subscribers_show_how_far_they_are_behind(
    controller: Controller, stores: Stores, page: str, browser: Browser
) -> None:
    subscriptions = Subscriptions(controller)
    await subscriptions.stream("shop", "orders")
    await subscriptions.subscribe("shop", "billing", "orders")
    await write(stores, "shop", "orders", 100 << 10)
    await browser.open(f"{page}#/stream/shop/orders")
    await browser.sees("it has not told a position yet", "main")
    await subscriptions.release("shop/billing", "shop/orders", 40 << 10)
    await browser.sees("60.0 KiB shop/billing", ".tiles")
    await browser.sees("billing\t60.0 KiB", "main")
    # Nobody tells more for two hours.
    await subscriptions.told_before("shop/billing", "shop/orders", 2 * 3600)
    await browser.sees("Subscriber shop/billing is 60.0 KiB behind and told no position for 2 hours. To do:", ".notice")
    await browser.sees("pravega-spark subscriber remove shop/billing", ".notice")
    await subscriptions.release("shop/billing", "shop/orders", 100 << 10)
    await browser.sees("0 B shop/billing", ".tiles")
    await eventually(lambda: lacks(browser, ".notice"), "no problem")


async def test_sinks_have_the_names_of_their_queries(controller: Controller, page: str, browser: Browser) -> None:
    await create(controller, "shop", "orders")
    name = "<img src=x onerror=document.title='owned'>"
    for query, label in (("q-named", name), ("q-unnamed", "")):
        await controller.sets.commit(query, "shop/orders", "run-1", 7, (), 0, 0, label=label)
    await browser.open(f"{page}#/stream/shop/orders")
    await browser.sees(f"q-named\t{name}\t7", "main")
    await browser.sees("q-unnamed\t–\t7", "main")
    assert await browser.count("main img") == 0


async def test_the_age_of_the_newest_watermark(
    controller: Controller, stores: Stores, page: str, browser: Browser
) -> None:
    await create(controller, "shop", "orders")
    assert controller.watermarks is not None
    now_ms = controller.store.clock.wall_ms()
    await controller.marks.note("shop", "orders", "writer", {0: 10}, 1_700_000_000_000)
    await controller.watermarks.run_once()
    stores.segments["shop/_MARKorders/0.#epoch.0"].last_modified_ms = now_ms - 600_000
    await browser.open(f"{page}#/stream/shop/orders")
    await browser.sees("10 min ago", "main")
    await browser.sees("2023-11-14 22:13:20 UTC", "main")


async def test_a_stream_that_does_not_exist(controller: Controller, page: str, browser: Browser) -> None:
    await controller.store.create_scope("shop")
    await browser.open(f"{page}#/stream/shop/none")
    await browser.sees("shop/none does not exist")
    # The answer 404 is in the console, and nothing else is.
    assert [problem for problem in await browser.problems() if "404" not in problem] == []


@pytest.mark.parametrize("is_dark", [False, True])
async def test_texts_can_be_read_light_and_dark(
    controller: Controller, page: str, is_dark: bool, browser: Browser
) -> None:
    await create(controller, "shop", "orders")
    await browser.prefer_dark(is_dark)
    await browser.open(page)
    await browser.sees("shop/orders")
    for selector in ("body", "th", "tbody a", "nav a", ".state"):
        assert await contrast(browser, selector) >= 4.5, selector


async def contrast(browser: Browser, selector: str) -> float:
    """Of a text with what is behind it, as WCAG 2 counts it."""
    found = await browser.run(
        """
        const channels = (text) => text.match(/[\\d.]+/g).map(Number);
        const light = (text) => {
          const parts = channels(text).slice(0, 3).map((one) => one / 255);
          const [r, g, b] = parts.map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const node = document.querySelector(arguments[0]);
        let behind = node;
        while (channels(getComputedStyle(behind).backgroundColor)[3] === 0) behind = behind.parentElement;
        const lights = [light(getComputedStyle(node).color), light(getComputedStyle(behind).backgroundColor)];
        return (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
        """,
        selector,
    )
    assert isinstance(found, float | int)
    return float(found)


async def test_names_for_screen_readers(controller: Controller, page: str, browser: Browser) -> None:
    await create(controller, "shop", "orders")
    await browser.open(f"{page}#/stream/shop/orders")
    await eventually(lambda: has(browser, "rect.segment"), "the picture")
    nameless = """
        return [...document.querySelectorAll('a, button, input, svg[tabindex], table')].filter((node) => {
          const name = node.ariaLabel || node.textContent.trim() || node.closest('label')?.textContent.trim();
          return !name;
        }).length
        """
    assert await browser.run(nameless) == 0
    await browser.open(page)
    await browser.sees("shop/orders")
    assert await browser.run(nameless) == 0
    assert await browser.run("return document.documentElement.lang") == "en"


# ---- events ----------------------------------------------------------------------------------------------------------

CANNED: Final = """
    const real = window.fetch;
    window.held = [];
    const page = (segment) => ({
      segment, startOffset: 0, length: 11, isSealed: false, next: 11,
      events: [{ offset: 0, length: 3, shown: 3, data: btoa('of' + segment[0]) }],
    });
    window.fetch = (url, options) => {
      if (!String(url).includes('/events?')) return real(url, options);
      const segment = new URL(url, location).searchParams.get('segment');
      const answer = () => new Response(JSON.stringify(page(segment)));
      if (window.refuses) return Promise.resolve(new Response('', { status: 404, statusText: 'the segment is gone' }));
      if (window.holds) return new Promise((resolve) => window.held.push(() => resolve(answer())));
      return Promise.resolve(answer());
    };
    """
"""Answers of a page about the events of a segment, which a test holds or refuses."""
CHOOSE: Final = """
    const [select, value] = [document.querySelectorAll('select')[arguments[0]], arguments[1]];
    select.value = value; select.dispatchEvent(new Event('change'));
    """


async def open_events(controller: Controller, page: str, browser: Browser, before: str = "") -> None:
    await create(controller, "shop", "orders", 2)
    await browser.open(page)
    await browser.sees("shop/orders")
    await browser.run(f"{CANNED}{before}; location.hash = '#/events/shop/orders'")


async def test_events_of_another_segment_that_come_late_are_not_shown(
    controller: Controller, page: str, browser: Browser
) -> None:
    await open_events(controller, page, browser, "window.holds = true")
    await eventually(lambda: browser.run("return window.held.length === 1"), "the question about the first segment")
    await browser.run(f"window.holds = false; {CHOOSE}", 0, "1.0")
    await browser.sees("of1")
    await browser.run("window.held.forEach((answer) => answer())")
    await asyncio.sleep(0.3)
    assert "of1" in await browser.text() and "of0" not in await browser.text()


async def test_events_of_before_do_not_come_back_after_a_refusal(
    controller: Controller, page: str, browser: Browser
) -> None:
    await open_events(controller, page, browser)
    await browser.sees("of0")
    await browser.run(f"window.refuses = true; {CHOOSE}", 0, "1.0")
    await browser.sees("The segment is gone.", "[role=alert]")
    await browser.run(CHOOSE, 1, "hex")
    await browser.sees("The segment is gone.", "[role=alert]")
    assert await browser.count("article") == 0, "they are of segment 0"


# ---- pure functions --------------------------------------------------------------------------------------------------


async def test_rates_and_colours(page: str, browser: Browser) -> None:
    await browser.open(page)
    found = await browser.call(
        "POST",
        "/execute/async",
        {
            "script": """
            const done = arguments[0];
            (async () => {
              const { Rates } = await import('/window/rates.js');
              const { level, darkRate, columnEdges, meanRate } = await import('/window/picture.js');
              const { size } = await import('/window/format.js');
              const rates = new Rates();
              const look = (atMs, epoch, bytes) => rates.take({ scope: 's', stream: 't', atMs, epoch, bytes }).total;
              const edges = columnEdges([{ createdMs: 0 }, { createdMs: 25 }], true, 200, 100);
              done([
                look(0, 1, 100), look(2000, 1, 300), look(4000, 2, 0), look(5000, 2, undefined), look(6000, 2, 50),
                level(null, 9), level(0, 9), level(8, 8), level(4, 8), level(0.001, 8),
                darkRate([null, 0]), edges, size(undefined), size(0), size(1536),
                meanRate({ fate: 'sealed', createdMs: 0, bytes: 5 }, 9),
              ]);
            })();
            """,
            "args": [],
        },
    )
    assert found == [None, 100, None, None, 25, None, 0, 6, 5, 1, 0, [0, 50, 200], "–", "0 B", "1.5 KiB", None]


async def test_json_is_indented_as_it_is_written(page: str, browser: Browser) -> None:
    await browser.open(page)
    written = """{"id":9007199254740993,"at":1.0,"n":-1E400,"id":2,"none":{},"few":[ ],"text":"a\\u00e4\\"}]\\\\",
        "deep":[{"":[true,null,[1,"x"]]},{}]}"""
    found = await pure(browser, "event_text.js", "formats.json(new TextEncoder().encode(given[0]), true)", written)
    assert (
        found
        == """{
  "id": 9007199254740993,
  "at": 1.0,
  "n": -1E400,
  "id": 2,
  "none": {},
  "few": [],
  "text": "a\u00e4\\"}]\\\\",
  "deep": [
    {
      "": [
        true,
        null,
        [
          1,
          "x"
        ]
      ]
    },
    {}
  ]
}"""
    )
    for plain in ("7", "[]", '"text"', "-0"):
        same = await pure(browser, "event_text.js", "formats.json(new TextEncoder().encode(given[0]), true)", plain)
        assert same == plain
    refused = await pure(browser, "event_text.js", "formats.json(new TextEncoder().encode(given[0]), true)", "{1}")
    assert refused.startswith("no JSON (") and refused.endswith("): {1}")


async def test_a_record_of_a_time_beyond_all_calendars_is_shown(page: str, browser: Browser) -> None:
    await browser.open(page)
    for time_us, shown in (
        (9_000_000_000_000_000_000, "time: 9000000000000000000 microseconds since 1970"),
        (1_700_000_000_000_000, "time: 2023-11-14T22:13:20.000Z"),
    ):
        event = bytes((0xE7, 2, 0b1011)) + struct.pack(">qII", time_us, 1, 0) + b"kv"
        found = await pure(browser, "event_text.js", "formats.record(new Uint8Array(given[0]), true)", list(event))
        assert found == f"key: k\n{shown}\nvalue: v"


async def test_the_page_of_the_interface_keeps_large_numbers(page: str, browser: Browser) -> None:
    await browser.open(f"{page}docs")
    await browser.sees("Lists scopes.", "main")
    answer = "window.fetch = async () => new Response('{\"rolloverSizeBytes\":9223372036854775807}')"
    await browser.run(f"{answer}; document.querySelector('details').open = true")
    await browser.run("document.querySelector('form').requestSubmit()")
    await browser.sees('"rolloverSizeBytes": 9223372036854775807', "pre:not([hidden])")


async def pure(browser: Browser, module: str, expression: str, *given: object) -> Any:
    """The value of an expression over what a module of the page exports, and over ``given``."""
    script = f"""
        const given = [...arguments], done = given.pop();
        import('/window/{module}').then((found) => {{
          const {{ formats }} = found;
          try {{ done({expression}); }} catch (error) {{ done(`failed: ${{error}}`); }}
        }});
        """
    return await browser.call("POST", "/execute/async", {"script": script, "args": list(given)})
