"""Makes the pictures of the window that the documents show: ``python -m tests.browser.screenshots FOLDER``."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path

from controller_service.service import Controller
from tests.support.browser import Browser, running_browser
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.history import stream_with_history

settled_s = 6.0
"""Rates need a few looks."""


async def _traffic(parts: ControllerParts) -> None:
    draw = random.Random(7)
    while True:
        for name, segment in parts.access.segments.items():
            if not segment.is_sealed and "/_MARK" not in name:
                segment.length += int(draw.paretovariate(1.5) * 20_000)
        await asyncio.sleep(0.5)


async def main(folder: Path) -> None:
    parts = ControllerParts()
    parts.hosts.known_controllers = [("127.0.0.1", 9090)]
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    traffic = asyncio.ensure_future(_traffic(parts))
    await stream_with_history(parts, controller, "shop", "orders", 4, 24, seed=3)
    await stream_with_history(parts, controller, "shop", "clicks", 8, 6, seed=4)
    await stream_with_history(parts, controller, "metering", "readings", 3, 11, seed=5)
    await _truncate(controller, "shop", "orders", 9)
    assert controller.rest is not None
    page = f"http://127.0.0.1:{controller.rest.port}/"
    with tempfile.TemporaryDirectory() as scratch:
        async with running_browser(Path(scratch)) as browser:
            await browser.resize(1180, 940)
            await _stream(browser, page, folder)
            await browser.open(page)
            await browser.sees("metering/readings")
            await asyncio.sleep(settled_s)
            await browser.resize(1180, 620)
            await browser.screenshot(folder / "window-streams.png")
    traffic.cancel()
    await controller.stop()


async def _truncate(controller: Controller, scope: str, stream: str, epoch: int) -> None:
    context = await controller.store.open(scope, stream)
    cut = {segment.segment_id: 10 for segment in (await context.epoch(epoch)).segments}
    await controller.parts.workflows.truncate.truncate("picture", scope, stream, cut)


async def _stream(browser: Browser, page: str, folder: Path) -> None:
    await browser.open(f"{page}#/stream/shop/orders")

    async def is_live() -> bool:
        return await browser.count("rect.now") > 0

    await eventually(is_live, "live rates")
    await asyncio.sleep(settled_s)
    await browser.screenshot(folder / "window-stream.png")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
