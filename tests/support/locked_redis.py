"""Runs a real redis-server that speaks TLS alone and lets one ACL user in."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pravega_common.runtime.client_tls import ClientTls
from pravega_common.services.redis_access import RedisSection
from tests.support.certificates import Authority
from tests.support.servers import RedisServer

USER: Final = "pravega"
PASSWORD: Final = "planted-secret-of-redis"
ACL: Final = (
    "~pravega:* resetchannels +@read +@write +@scripting +@transaction +@connection +info +time "
    "+config|get +acl|getuser"
)
"""The permissions that docs/security.md gives the user of controllers and stores."""
DEFAULT_USER: Final = "off resetpass ~* &* +@all"
"""Nobody logs in as the default user, with whose permissions a restart replays the append-only file."""


class LockedRedis(RedisServer):
    """The default user is off; ``password_file`` has the password of ``USER``."""

    def __init__(self, folder: Path, default_user: str = DEFAULT_USER) -> None:
        super().__init__(folder)
        files = Authority(folder / "ca").issue("redis")
        self.ca_file = files.ca
        self.password_file = folder / "password"
        self.password_file.touch(mode=0o600)
        self.password_file.write_text(f"{PASSWORD}\n")
        users = folder / "users.acl"
        users.write_text(f"user default {default_user}\nuser {USER} on >{PASSWORD} {ACL}\n")
        self.settings |= {
            "tls-cert-file": str(files.certificate),
            "tls-key-file": str(files.key),
            "tls-ca-cert-file": str(files.ca),
            "tls-auth-clients": "no",
            "aclfile": str(users),
        }

    def command(self) -> list[str]:
        return [*super().command(), "--port", "0", "--tls-port", str(self.port)]

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}"

    @property
    def section(self) -> RedisSection:
        return RedisSection(username=USER, password_file=str(self.password_file), ca_file=str(self.ca_file))

    def call(self, *command: str | int) -> bytes:
        """As of ``RedisServer``, after a login."""
        login = b"AUTH %s %s\r\n" % (USER.encode(), PASSWORD.encode())
        context = ClientTls.from_file(self.ca_file).context
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain:
            stream = context.wrap_socket(plain, server_hostname="127.0.0.1")
            stream.sendall(login + b" ".join(str(part).encode() for part in command) + b"\r\n")
            answer = b""
            while answer.count(b"\r\n") < 2:
                answer += stream.recv(65536)
        return answer.partition(b"\r\n")[2].removesuffix(b"\r\n")


@contextmanager
def running_locked_redis(folder: Path, default_user: str = DEFAULT_USER) -> Iterator[LockedRedis]:
    """Fails with the server's own words where redis-server was built without TLS."""
    server = LockedRedis(folder, default_user)
    try:
        server.start()
        yield server
    finally:
        server.kill()
