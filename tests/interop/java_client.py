"""Drives Pravega's own Java client, as it is in the jars of the real Pravega, in a Java process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.java_gateway import JavaGateway

from tests.interop.real_pravega import jar_folder, opened_packages
from tests.support.maven import SHORT_LIVED, java

heap_bytes_max: Final = 512 << 20


class JavaClient:
    """Java objects of one scope; their methods are those of ``io.pravega.client``. Made by ``running_java_client``."""

    def __init__(
        self,
        gateway: JavaGateway,
        controller_uri: str,
        scope: str,
        trust_store: str = "",
        user: tuple[str, str] | None = None,
    ) -> None:
        self._pravega = gateway.jvm.io.pravega.client
        self._scope = scope
        self._bytes = self._pravega.stream.impl.ByteArraySerializer()
        uri = gateway.jvm.java.net.URI.create(controller_uri)
        builder = self._pravega.ClientConfig.builder().controllerURI(uri)
        if trust_store:
            builder = builder.trustStore(trust_store).validateHostName(True)
        if user is not None:
            name, password = user
            builder = builder.credentials(
                gateway.jvm.io.pravega.shared.security.auth.DefaultCredentials(password, name)
            )
        config = builder.build()
        self._streams = self._pravega.EventStreamClientFactory.withScope(scope, config)
        self._groups = self._pravega.admin.ReaderGroupManager.withScope(scope, config)

    def close(self) -> None:
        self._groups.close()
        self._streams.close()

    def stream(self, name: str) -> Any:
        return self._pravega.stream.Stream.of(self._scope, name)

    def writer(self, stream: str, *, large_events: bool = False) -> Any:
        """An ``EventStreamWriter`` of byte arrays; with ``large_events`` also of events above 8 MiB."""
        config = self._pravega.stream.EventWriterConfig.builder().enableLargeEvents(large_events).build()
        return self._streams.createEventWriter(stream, self._bytes, config)

    def create_group(self, group: str, stream: str) -> None:
        """A reader group that begins at the stream's head."""
        config = self._pravega.stream.ReaderGroupConfig.builder().stream(self.stream(stream)).build()
        self._groups.createReaderGroup(group, config)

    def reader(self, name: str, group: str) -> Any:
        """An ``EventStreamReader`` of byte arrays."""
        config = self._pravega.stream.ReaderConfig.builder().build()
        return self._streams.createReader(name, group, self._bytes, config)


@contextmanager
def running_java_client(
    controller_uri: str, scope: str, trust_store: str = "", user: tuple[str, str] | None = None
) -> Iterator[JavaClient]:
    """The process ends with the context. ``trust_store``: certificates in PEM, for a ``tls://`` address. ``user``: a
    name and a password; None for a cluster that asks for none."""
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in opened_packages]
    options = [*SHORT_LIVED, f"-Xmx{heap_bytes_max}", *opened]
    gateway = JavaGateway.launch_gateway(
        classpath=f"{jar_folder()}/*", javaopts=options, java_path=java(), die_on_exit=True
    )
    try:
        client = JavaClient(gateway, controller_uri, scope, trust_store, user)
        try:
            yield client
        finally:
            client.close()
    finally:
        gateway.shutdown()
