"""Drives a headless Chromium by its driver's WebDriver protocol.

Each browser has a driver and a profile of its own, in a folder of the test, and is ended by process id.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.eventually import eventually
from tests.support.servers import free_port

REMEDY: Final = "scripts/setup --browser installs it (apt-get install chromium chromium-driver)"
ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
start_time_max_s: Final = 60.0
answer_time_max_s: Final = 60.0
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"


def find_program(*names: str) -> str:
    """The first of the programs that is on the path; an error with the remedy if none is."""
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    raise FileNotFoundError(f"{' or '.join(names)} is not on the path: {REMEDY}")


class Browser:
    """A page in a browser. Errors of the driver are raised as ``AssertionError`` with its text."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        json = {} if body is None and method == "POST" else body
        async with self._session.request(method, f"{self._base}{path}", json=json) as answer:
            value = (await answer.json())["value"]
            assert answer.status == 200, value
            return value

    async def open(self, url: str) -> None:
        await self.call("POST", "/url", {"url": url})

    async def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns."""
        return await self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    async def text(self, selector: str = "main") -> str:
        """The text that is seen in the first element of a CSS selector; empty without one."""
        found = await self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        assert isinstance(found, str)
        return found

    async def count(self, selector: str) -> int:
        found = await self.run("return document.querySelectorAll(arguments[0]).length", selector)
        assert isinstance(found, int)
        return found

    async def sees(self, text: str, selector: str = "main") -> None:
        """Wait until an element has a text."""

        async def is_there() -> bool:
            return text in await self.text(selector)

        try:
            await eventually(is_there, f"{text!r} in {selector}")
        except TimeoutError as error:
            raise AssertionError(f"no {text!r} in {selector}, but {await self.text(selector)!r}") from error

    async def click(self, selector: str) -> None:
        await self.call("POST", f"/element/{await self._find(selector)}/click")

    async def type(self, selector: str, keys: str) -> None:
        await self.call("POST", f"/element/{await self._find(selector)}/value", {"text": keys})

    async def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        await self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]})

    async def resize(self, width: int, height: int) -> None:
        await self.call("POST", "/window/rect", {"width": width, "height": height})

    async def prefer_dark(self, is_dark: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        command = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}
        await self.call("POST", "/goog/cdp/execute", command)

    async def problems(self) -> list[str]:
        """What the console has of errors and warnings since the last call, refusals by the page's policy among them."""
        found = await self.call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in found if entry["level"] in ("SEVERE", "WARNING")]

    async def screenshot(self, path: Path) -> None:
        content = base64.b64decode(await self.call("GET", "/screenshot"))
        await asyncio.to_thread(path.write_bytes, content)

    async def _find(self, selector: str) -> str:
        found = await self.call("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])


@asynccontextmanager
async def running_browser(folder: Path) -> AsyncIterator[Browser]:
    """``folder``: for the profile and the driver's log."""
    port = free_port()
    driver, chromium = find_program("chromedriver"), find_program("chromium", "chromium-browser", "google-chrome")
    process = await asyncio.to_thread(_start, [driver, f"--port={port}"], folder)
    try:
        timeout = aiohttp.ClientTimeout(total=answer_time_max_s)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await eventually(lambda: _answers(session, port), "an answer of chromedriver", start_time_max_s)
            base = await _new_session(session, f"http://127.0.0.1:{port}", chromium, folder / "profile")
            try:
                yield Browser(session, base)
            finally:
                async with session.delete(base):
                    pass
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


def _start(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "driver.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


async def _answers(session: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with session.get(f"http://127.0.0.1:{port}/status") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _new_session(session: aiohttp.ClientSession, address: str, chromium: str, profile: Path) -> str:
    arguments = [*ARGUMENTS, f"--user-data-dir={profile}", "--window-size=1360,1000"]
    capabilities = {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": chromium, "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
    }
    wanted = {"capabilities": {"alwaysMatch": capabilities}}
    async with session.post(f"{address}/session", json=wanted) as answer:
        value = (await answer.json())["value"]
        assert answer.status == 200, value
        return f"{address}/session/{value['sessionId']}"
