"""Forwards TCP connections, and can cut them or swallow answers at the worst moment."""

from __future__ import annotations

import asyncio


class CuttingProxy:
    """Forwards to ``host:port``; start with ``await proxy.start()``, then connect to ``proxy.address``."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self.swallow_answers = False
        """While true, requests reach the target but no answer comes back."""
        self.hold_requests = False
        """While true, requests stop in the proxy; ``deliver_held`` lets them arrive, also after a cut."""
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self.swallowed = 0
        """Pieces of answers that reached nobody."""
        self.refuse = False
        """While true, new connections are closed at once."""
        self.connections = 0

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._pipes):
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    def cut(self) -> None:
        """Reset every open connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def cut_clients(self) -> None:
        """Reset the connections of the clients; what is held can still reach the target."""
        for writer in self._clients:
            writer.transport.abort()
        self._clients.clear()

    async def deliver_held(self) -> None:
        self.hold_requests = False
        held, self._held = self._held, []
        for sink, data in held:
            sink.write(data)
            await sink.drain()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.refuse:
            writer.transport.abort()
            return
        try:
            target_reader, target_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, target_writer}
        self._clients.add(writer)
        for source, sink, answers in ((reader, target_writer, False), (target_reader, writer, True)):
            task = asyncio.get_running_loop().create_task(self._pipe(source, sink, answers))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        try:
            while data := await source.read(65536):
                if self.hold_requests and not answers:
                    self._held.append((sink, data))
                elif answers and self.swallow_answers:
                    self.swallowed += 1
                else:
                    sink.write(data)
                    await sink.drain()
        except OSError:
            pass
        finally:
            if not any(sink is holder for holder, _ in self._held):
                sink.close()
