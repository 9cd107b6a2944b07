"""Makes authorities and certificates for tests: good ones, ended ones, and some for other hosts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pravega_common.services.tls import TlsSection

LOCAL_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its key."""

    certificate: Path
    key: Path
    ca: Path

    @property
    def section(self) -> TlsSection:
        return TlsSection(certificate_file=str(self.certificate), key_file=str(self.key), ca_file=str(self.ca))


class Authority:
    """An authority in a folder, whose certificate is ``file``."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        signed = (
            _builder(self._name, self._name, self._key, 10)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "ca.pem"
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str = "server", *, hosts: tuple[str, ...] = LOCAL_NAMES, days: int = 5) -> CertificateFiles:
        """Sign a certificate; one of the same name is replaced. With negative ``days`` it ended that long ago. Without
        hosts the name is what only its subject has."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        named = _builder(subject, self._name, key, days)
        if hosts:
            named = named.add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
        certificate = (
            named.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(signer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = CertificateFiles(self._folder / f"{name}.pem", self._folder / f"{name}-key.pem", self.file)
        form = serialization.PrivateFormat.PKCS8
        files.key.touch(mode=0o600)
        files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    end = datetime.now(UTC) + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=30))
        .not_valid_after(end)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
