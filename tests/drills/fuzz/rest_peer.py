"""Sends mutated REST requests to a controller over raw sockets, and counts the statuses that come back."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Final
from urllib.parse import quote

from controller_service.api.rest.access_guard import NEEDS, OPEN
from tests.drills.fuzz.grpc_peer import header_of, segments_max
from tests.drills.fuzz.values import Target, Values
from tests.drills.fuzz.wire_peer import PeerCounts
from tests.support.recordings import TRANSCRIPTS

connections_together: Final = 6
answer_time_max_s: Final = 60.0
_NEEDS: Final = tuple(sorted(NEEDS))
_OPEN: Final = tuple(sorted(OPEN))
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW")
_KINDS: Final = ("application/json", "application/json; charset=utf-8", "text/plain", "", "application/x", "a/b;c=\x01")
_QUERIES: Final = (
    "",
    "",
    "?limit=1",
    "?limit=-1",
    "?limit=%C2%B2",
    "?from=1&to=0",
    "?filter=%00",
    "?a=b&a=b",
    "?" + "x" * 9_000,
)


def recorded_bodies() -> list[Any]:
    """The bodies of real requests."""
    lines = (TRANSCRIPTS / "probe-rest.http.jsonl").read_text().splitlines()
    return [body for line in lines if (body := json.loads(line)["request"]) is not None]


class RequestMaker:
    """Makes mutated requests, the same for the same seed and target."""

    def __init__(self, seed: str, target: Target, header: str, host: str) -> None:
        self._chooser = random.Random(seed)
        self._values = Values(self._chooser, target)
        self._header = header
        self._host = host
        self._bodies = recorded_bodies()

    def request(self) -> tuple[bytes, bool]:
        """The bytes of a request, and whether the connection ends after it at the latest."""
        chooser = self._chooser
        method, place = chooser.choice(_NEEDS if chooser.random() < 0.85 else _OPEN)
        if chooser.random() < 0.05:
            method = chooser.choice(_METHODS)
        self._values.is_ending = method == "DELETE" or place.endswith("/state")
        path = place
        for name in ("scope", "stream", "group", "id"):
            if f"{{{name}}}" in path:
                value = self._values.scope() if name == "scope" else self._values.stream()
                path = path.replace(f"{{{name}}}", quote(value, safe=chooser.choice(("", "/", "/%"))))
        path += chooser.choice(_QUERIES)
        body = self._body() if method in ("POST", "PUT", "PATCH") or chooser.random() < 0.02 else b""
        data = self._head(method, path, len(body)) + body
        if chooser.random() < 0.05:
            return self._mangled(data), True
        # Their answers have no length: a stream of events, a head without a body.
        return data, "/live/" in path or method in ("HEAD", "TRACE", "BREW")

    def _head(self, method: str, path: str, length: int) -> bytes:
        chooser = self._chooser
        lines = [f"{method} {path or '/'} HTTP/1.1"]
        lines.append(f"Host: {self._host if chooser.random() < 0.98 else chooser.choice(('evil.example', '', 'x:y'))}")
        if header := header_of(self._header, chooser):
            lines.append(f"Authorization: {header}")
        if length or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {length}")
            kind = chooser.choice(_KINDS) if chooser.random() < 0.1 else _KINDS[0]
            lines.append(f"Content-Type: {kind}")
        if chooser.random() < 0.02:
            lines.append(
                chooser.choice(("Origin: http://evil.example", "Origin: null", "X: " + "y" * 9_000, "Expect: x"))
            )
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "replace")

    def _body(self) -> bytes:
        chooser = self._chooser
        roll = chooser.random()
        if roll < 0.03:
            return chooser.choice(
                (b"[" * 50_000, b'{"a":' * 5_000, b"\xff\xfe", b"NaN", b"1e999", b'"' + b"x" * 100_000)
            )
        body = self._mutated(json.loads(json.dumps(chooser.choice(self._bodies))))
        text = json.dumps(body).encode()
        if roll < 0.08:
            text = text[: chooser.randrange(len(text) + 1)]
        return text

    def _mutated(self, body: Any) -> Any:
        """The body about this cluster's streams, with a field or two of another type, hostile or gone."""
        chooser = self._chooser
        if not isinstance(body, dict) or not body:
            return chooser.choice((None, [], {}, 1, "x", [[]]))
        for name in list(body):
            if name in ("streamName", "scopeName"):
                body[name] = self._values.scope() if name == "scopeName" else self._values.stream()
        for _ in range(chooser.choice((0, 1, 1, 2))):
            name = chooser.choice(list(body) or ["x"])
            if isinstance(body.get(name), dict) and chooser.random() < 0.6:
                body[name] = self._mutated(body[name])
            elif chooser.random() < 0.1:
                body.pop(name, None)
            else:
                body[name] = self._value(name)
        return body

    def _value(self, name: str) -> Any:
        chooser, values = self._chooser, self._values
        number: Any = values.integer(64)
        if name in ("minSegments", "minNumSegments") and segments_max < number <= 4_500:
            number = segments_max
        text = values.stream()
        return chooser.choice((number, number, text, None, True, 1.5, -1e308, [], {}, [text] * 200, {"a": {"b": [1]}}))

    def _mangled(self, data: bytes) -> bytes:
        """The bytes with some changed, put in, or cut off."""
        chooser, made = self._chooser, bytearray(data)
        what = chooser.randrange(3)
        if what == 0:
            del made[chooser.randrange(len(made)) :]
        elif what == 1:
            place = chooser.randrange(min(len(made), 200))
            made[place:place] = chooser.choice(
                (b"\0", b"\r\n", b"\r\nContent-Length: 5\r\n", b"Transfer-Encoding: x", b"\xff")
            )
        else:
            for _ in range(3):
                made[chooser.randrange(min(len(made), 300))] = chooser.getrandbits(8)
        return bytes(made)


class RestPeer:
    """One peer of a controller. ``header``: its credentials, empty for an anonymous one."""

    def __init__(self, seed: str, address: str, target: Target, header: str) -> None:
        self._seed, self._target, self._header = seed, target, header
        self._host, _, port = address.rpartition(":")
        self._address = address
        self._port = int(port)
        self.counts = PeerCounts()

    async def run(self, requests: int) -> PeerCounts:
        """Make so many requests."""
        left = iter(range(requests))
        await asyncio.gather(*(self._worker(number, left) for number in range(connections_together)))
        return self.counts

    async def _worker(self, number: int, left: Any) -> None:
        maker = RequestMaker(f"{self._seed}-{number}", self._target, self._header, self._address)
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        for _ in left:
            data, is_last = maker.request()
            try:
                async with asyncio.timeout(answer_time_max_s):
                    if streams is None:
                        streams = await asyncio.open_connection(self._host, self._port, limit=1 << 20)
                        self.counts.connections += 1
                    streams[1].write(data)
                    answer, is_open = await self._answer(streams, is_last)
            except TimeoutError:
                answer, is_open = "no answer", False
                self.counts.stalled += 1
            except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                answer, is_open = type(error).__name__, False
            self.counts.handled += answer != "no answer"
            self.counts.note(answer)
            if not is_open and streams is not None:
                streams[1].close()
                streams = None

    async def _answer(
        self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], is_last: bool
    ) -> tuple[str, bool]:
        """The status of the answer, and whether the connection can be used again."""
        reader, writer = streams
        if is_last:
            writer.write_eof()
        head = await reader.readuntil(b"\r\n\r\n") if not is_last else await reader.read(1 << 12)
        if not head:
            return "closed", False
        lines = head.decode("latin-1").split("\r\n")
        status = lines[0].split(" ")[1] if " " in lines[0] else "?"
        if status >= "500":
            self.counts.note_failure(lines[0])
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if is_last or "content-length" not in fields or fields.get("connection") == "close":
            return status, False
        await reader.readexactly(int(fields["content-length"]))
        return status, True
