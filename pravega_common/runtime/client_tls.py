"""Defines how a client verifies the servers that it speaks TLS to, and explains handshakes that failed.

The certificates of an authority are no secret: a client has their text, which travels with it to other processes.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pravega_common.errors import AuthenticationFailed, ConfigurationError, RejectedError

handshake_time_max_s: Final = 5.0
probe_time_max_s: Final = 2.0
"""How long a handshake may take that is made only to explain why another one failed."""
contexts_cached_max: Final = 16
"""Authorities that one process has contexts of; a client has one."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The authorities that a client trusts, as PEM text; empty: those of the system.

    ``verify_host``: whether a certificate must be valid for the name or address that was connected to. Without that any
    server with a certificate of these authorities is believed to be every other one.
    """

    ca_pem: str = field(default="", repr=False)
    verify_host: bool = True

    @classmethod
    def from_file(cls, ca_file: str | Path, *, verify_host: bool = True) -> ClientTls:
        """Trust the certificates of a file; empty: the system's. ``ConfigurationError`` if it holds none."""
        if not str(ca_file):
            return cls("", verify_host)
        try:
            made = cls(Path(ca_file).read_text(), verify_host)
            client_context(made)
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ConfigurationError(
                f"ca_file '{ca_file}': {reason}; it must be a readable file with certificates in PEM form"
            ) from error
        return made

    @property
    def context(self) -> ssl.SSLContext:
        """The context of all connections with this trust."""
        return client_context(self)

    def root_certificates(self) -> bytes | None:
        """Returns the certificates for gRPC; ``None`` for its own, where the system has no file of them."""
        if self.ca_pem:
            return self.ca_pem.encode()
        system = ssl.get_default_verify_paths().cafile
        return Path(system).read_bytes() if system else None


SYSTEM_TRUST: Final = ClientTls()


@lru_cache(contexts_cached_max)
def client_context(tls: ClientTls) -> ssl.SSLContext:
    """A context for the trust: TLS 1.2 or newer, certificates required."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.verify_host
    if tls.ca_pem:
        context.load_verify_locations(cadata=tls.ca_pem)
    else:
        context.load_default_certs()
    return context


def explained(error: Exception, what: str) -> RejectedError | None:
    """One sentence for an error of a handshake that will not pass, with the way out; ``None`` for any other error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"{what} shows a certificate that is not trusted ({_reason(error)})")
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG"):
        return ConfigurationError(
            f"{what} does not speak TLS: use tcp://host:port, or give the cluster's services certificates ([tls])"
        )
    if isinstance(error, ssl.SSLError) and error.reason in (
        "TLSV1_ALERT_PROTOCOL_VERSION",
        "UNSUPPORTED_PROTOCOL",
    ):
        return ConfigurationError(f"{what} speaks a version of TLS before 1.2, which is refused: upgrade it")
    return None


def _reason(error: ssl.SSLCertVerificationError) -> str:
    text = error.verify_message.rstrip(".")
    if "expired" in text:
        return f"{text}: renew it, or check the clock of this machine"
    if "not yet valid" in text:
        return f"{text}: check the clock of this machine"
    if "mismatch" in text or "not valid for" in text:
        return f"{text}: connect by a name that it has, or have it made for this one"
    return f"{text}: name the cluster's authority with ca_file or PRAVEGA_CA_FILE"


def tls_problem(host: str, port: int, tls: ClientTls | None, what: str) -> RejectedError | None:
    """Why a connection to an address cannot work with TLS, or without; found by trying a handshake.

    ``None`` if nothing is wrong, or nothing can be told: nobody listens, or no answer comes in ``probe_time_max_s``.
    """
    if tls is None:
        return _problem_of_plaintext(host, port, what)
    try:
        with _handshake(host, port, tls.context) as stream:
            if tls.verify_host or _name_in_certificate(stream):
                return None
    except OSError as error:
        return explained(error, what)
    return ConfigurationError(
        f"the certificate of {what} has no name, and gRPC connects to no such server: have one made for its host"
    )


def _problem_of_plaintext(host: str, port: int, what: str) -> RejectedError | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(OSError), _handshake(host, port, context):
        return ConfigurationError(
            f"{what} speaks TLS: use tls://host:port, with the cluster's authority as ca_file or in PRAVEGA_CA_FILE"
        )
    return None


def certified_name(host: str, port: int, tls: ClientTls) -> str:
    """The first name in the certificate of a server, which must be of the authorities trusted; empty if it has none."""
    with _handshake(host, port, tls.context) as stream:
        return _name_in_certificate(stream)


def _name_in_certificate(stream: ssl.SSLSocket) -> str:
    """The first name of a host, or else the common name of the subject, which gRPC compares then."""
    certificate: dict[str, Any] = stream.getpeercert() or {}
    hosts = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return str(next(iter(hosts + common), ""))


def _handshake(host: str, port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection((host, port), timeout=probe_time_max_s)
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
