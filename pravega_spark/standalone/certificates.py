"""Makes the certificates of a standalone: an authority of its own, and a certificate of the services that it signs."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pravega_common.errors import ConfigurationError
from pravega_common.services.private_files import replace_file

authority_days: Final = 3_650
certificate_days: Final = 397
"""The longest that browsers accept, for the REST pages."""
renewal_days: Final = 30
"""A certificate that ends sooner is replaced when the standalone starts."""
clock_skew: Final = timedelta(hours=1)
"""Certificates are valid from this long ago on: clocks of other machines may be behind."""
name_chars_max: Final = 64
"""The longest common name (RFC 5280, appendix A)."""
_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ServiceCertificate:
    """The files of the certificate that all services of a standalone serve, and of the authority that signed it."""

    ca_file: Path
    certificate_file: Path
    key_file: Path


@dataclass(frozen=True, slots=True)
class _Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def chain(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def service_certificate(folder: Path, host: str, now: datetime | None = None) -> ServiceCertificate:
    """Make what a folder lacks, and replace what is near its end or not valid for ``host``.

    An authority that is replaced has to be given to all clients again. ``ConfigurationError`` for damaged files.
    """
    now = now or datetime.now(UTC)
    files = ServiceCertificate(folder / "ca.pem", folder / "server.pem", folder / "server-key.pem")
    authority = _read(files.ca_file, folder / "ca-key.pem")
    is_new = authority is None or _ends_soon(authority, now)
    if authority is None or is_new:
        authority = _make_authority(now)
        _write(files.ca_file, folder / "ca-key.pem", authority)
    names = tuple(dict.fromkeys((host, socket.gethostname(), *_NAMES)))
    served = _read(files.certificate_file, files.key_file)
    if served is None or is_new or _ends_soon(served, now) or not set(map(_general, names)) <= _names_of(served):
        _write(files.certificate_file, files.key_file, _make_certificate(authority, names, now))
    return files


def _make_authority(now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    text = f"pravega-spark standalone on {socket.gethostname()}"[:name_chars_max]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _builder(name, name, key, now, authority_days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Pair(certificate, key)


def _make_certificate(authority: _Pair, names: Sequence[str], now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pravega-spark")])
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = (
        _builder(subject, authority.certificate.subject, key, now, certificate_days)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return _Pair(certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - clock_skew)
        .not_valid_after(now + timedelta(days=days))
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(served: _Pair) -> set[x509.GeneralName]:
    try:
        return set(served.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()


def _ends_soon(pair: _Pair, now: datetime) -> bool:
    return pair.certificate.not_valid_after_utc - now < timedelta(days=renewal_days)


def _read(certificate_file: Path, key_file: Path) -> _Pair | None:
    """``None`` unless both are there: the certificate is written last."""
    if not (certificate_file.exists() and key_file.exists()):
        return None
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{certificate_file.parent} has certificates that cannot be read ({error}): delete the folder, and new"
            " ones are made"
        ) from error
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key():
        return _Pair(certificate, key)
    return None


def _write(certificate_file: Path, key_file: Path, pair: _Pair) -> None:
    """The key first: a start that is cut off between them leaves a pair that does not match, and is made again."""
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    replace_file(key_file, pair.key.private_bytes(encoding, form, serialization.NoEncryption()))
    replace_file(certificate_file, pair.chain, 0o644)
