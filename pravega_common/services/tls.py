"""Serves TLS with a certificate that is read again, without a restart, when its files change."""

from __future__ import annotations

import ssl
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.client_tls import ClientTls
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service
from pravega_common.services.problems import Problem
from pravega_common.services.settings import Section

check_period_s: Final = 10.0
"""How often the files are looked at: two ``stat`` calls."""
handshake_time_max_s: Final = 10.0
"""How long a peer has for its handshake, as it then has for its Hello."""
expiry_warning_days: Final = 14
"""A certificate that is valid for less is a problem, and warned about once a day."""
_REMEDY: Final = "replace its files: they are read again without a restart"
_REFUSED_REMEDY: Final = "replace both files by a certificate and its key: they are read again without a restart"
problem_chars_max: Final = 500
"""A problem's text, which travels with a lease."""
_FORBIDDEN_MODE: Final = stat.S_IWGRP | stat.S_IRWXO


class TlsSection(Section):
    """The certificate of a service, and the authorities that it trusts when it connects to others of the cluster."""

    certificate_file: str = ""
    key_file: str = ""
    ca_file: str = ""

    @property
    def is_served(self) -> bool:
        """Whether the service's own ports speak TLS."""
        return bool(self.certificate_file)

    def problems(self) -> list[str]:
        """Lists the settings that are missing, one line each."""
        if bool(self.certificate_file) != bool(self.key_file):
            given, missing = ("certificate_file", "key_file")[:: 1 if self.certificate_file else -1]
            return [f"tls.{given} is set and tls.{missing} is not: TLS needs both"]
        return []

    def client(self) -> ClientTls:
        """The trust in other servers of the cluster. ``ConfigurationError`` for a file without certificates."""
        return ClientTls.from_file(self.ca_file)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with those of its signers, its key, both as PEM, and a context that serves them."""

    chain_pem: bytes
    key_pem: bytes
    not_after: datetime
    context: ssl.SSLContext


class ServerTls(Service):
    """The certificate of all ports of a process. A new file that cannot be used is a problem, and the old one stays."""

    def __init__(self, section: TlsSection, clock: Clock) -> None:
        """``ConfigurationError`` for files that cannot be served."""
        super().__init__("tls")
        self._files = Path(section.certificate_file), Path(section.key_file)
        self._clock = clock
        self._seen = self._stamp()
        self.certificate = load_certificate(*self._files)
        self.context = server_context(*self._files)
        """For every listener: a handshake is served by the context of the newest certificate."""
        self.context.sni_callback = self._choose
        self._warned_at_s = float("-inf")
        self._refusal = ""
        """Why the files that are there now cannot be used; empty while they can."""

    async def on_start(self) -> None:
        self.log.info(
            "serving TLS", certificate=str(self._files[0]), valid_until=self.certificate.not_after.isoformat()
        )
        self.spawn(self._watch(), "certificate-files")

    async def _watch(self) -> None:
        while True:
            self._warn_of_expiry()
            await self._clock.sleep(check_period_s)
            self.check_files()

    def check_files(self) -> None:
        """Load the files if they changed since they were last looked at, or could not be used then."""
        stamp = self._stamp()
        if stamp == self._seen and not self._refusal:
            return
        self._seen = stamp
        try:
            self.certificate = load_certificate(*self._files)
        except ConfigurationError as error:
            if str(error) != self._refusal:
                self.log.error("the new certificate cannot be used, the old one is still served", error=str(error))
            self._refusal = str(error)
            return
        self._refusal = ""
        self._warned_at_s = float("-inf")
        self.log.info("serving a new certificate", valid_until=self.certificate.not_after.isoformat())

    def _choose(self, stream: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        stream.context = self.certificate.context

    def problems(self) -> list[Problem]:
        """The problems of the certificate that is served, and of files that should have replaced it."""
        return [problem for problem in (self._end(), self._refused()) if problem is not None]

    def _refused(self) -> Problem | None:
        if not self._refusal:
            return None
        day = f"{self.certificate.not_after:%Y-%m-%d}"
        text = f"the new certificate cannot be used, and the old one, which ends on {day}, is served: {self._refusal}"
        return Problem("certificate-refused", text[:problem_chars_max], _REFUSED_REMEDY, stops_work=False)

    def _end(self) -> Problem | None:
        left = self.certificate.not_after - datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
        if left >= timedelta(days=expiry_warning_days):
            return None
        day = f"{self.certificate.not_after:%Y-%m-%d}"
        when = f"ends in {left.days} days, on {day}" if left > timedelta() else f"ended on {day}: it is refused"
        return Problem("certificate-ends", f"the certificate {self._files[0]} {when}", _REMEDY, stops_work=False)

    def _warn_of_expiry(self) -> None:
        problem, now_s = self._end(), self._clock.monotonic_s()
        if problem is not None and now_s - self._warned_at_s >= timedelta(days=1).total_seconds():
            self._warned_at_s = now_s
            self.log.warning(
                "the certificate ends soon: replace its files, they are read again without a restart",
                certificate=str(self._files[0]),
                valid_until=self.certificate.not_after.isoformat(),
            )

    def _stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Returns marks that change when a file is written or replaced; zeros for one that is missing."""
        found = []
        for file in self._files:
            try:
                status = file.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return tuple(found)


def problems_of(tls: ServerTls | None) -> list[Problem]:
    """The problems of a service's certificate; none of a service without TLS."""
    return [] if tls is None else tls.problems()


def make_server_tls(section: TlsSection, clock: Clock) -> ServerTls | None:
    """The certificate of a service; ``None`` for one without TLS."""
    return ServerTls(section, clock) if section.is_served else None


def load_certificate(certificate_file: Path, key_file: Path) -> Certificate:
    """Read and check both files. ``ConfigurationError`` says which of them is wrong, and what with it."""
    chain_pem, key_pem = _read("tls.certificate_file", certificate_file), _read("tls.key_file", key_file)
    try:
        return _loaded(certificate_file, key_file, chain_pem, key_pem)
    except OSError as error:
        raise ConfigurationError(
            f"tls.certificate_file = '{certificate_file}' or its key changed while it was read: {error.strerror}"
        ) from error


def _loaded(certificate_file: Path, key_file: Path, chain_pem: bytes, key_pem: bytes) -> Certificate:
    """The certificate of files that have this in them; ``OSError`` if one of them goes meanwhile."""
    mode = key_file.stat().st_mode
    if mode & _FORBIDDEN_MODE:
        raise ConfigurationError(
            f"tls.key_file = '{key_file}' has mode {stat.S_IMODE(mode):04o}, others may use it: chmod 600 '{key_file}'"
        )
    try:
        not_after = x509.load_pem_x509_certificates(chain_pem)[0].not_valid_after_utc
    except ValueError as error:
        raise ConfigurationError(f"tls.certificate_file = '{certificate_file}': no certificate in PEM form") from error
    context = server_context(certificate_file, key_file)
    if (certificate_file.read_bytes(), key_file.read_bytes()) != (chain_pem, key_pem):
        raise ConfigurationError(f"tls.certificate_file = '{certificate_file}' changed while it was read")
    return Certificate(chain_pem, key_pem, not_after, context)


def server_context(certificate_file: Path, key_file: Path) -> ssl.SSLContext:
    """A context of TLS 1.2 and 1.3. ``ConfigurationError`` if key and certificate do not belong together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate_file, key_file, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"tls.key_file = '{key_file}' does not belong to tls.certificate_file = '{certificate_file}',"
            f" or is no key in PEM form ({error})"
        ) from error
    return context


def _no_password() -> str:
    raise ConfigurationError("tls.key_file has a password, which nobody can type in here: store the key without one")


def _read(setting: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{setting} = '{file}': {error.strerror}") from error
