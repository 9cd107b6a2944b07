"""Makes, keeps and renews the certificates of a standalone."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from pravega_common.errors import ConfigurationError
from pravega_common.services.tls import load_certificate
from pravega_spark.standalone.certificates import (
    authority_days,
    certificate_days,
    renewal_days,
    service_certificate,
)

NOW = datetime.now(UTC)


def test_a_start_makes_files_that_only_the_owner_may_read_and_the_next_keeps_them(tmp_path: Path) -> None:
    files = service_certificate(tmp_path, "store.example", NOW)
    for key in (files.key_file, tmp_path / "ca-key.pem"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    made = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert set(made) == {"ca.pem", "ca-key.pem", "server.pem", "server-key.pem"}
    load_certificate(files.certificate_file, files.key_file)
    ssl.create_default_context(cafile=str(files.ca_file))
    names = x509.load_pem_x509_certificate(made["server.pem"]).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert {"store.example", "localhost"} <= set(names.value.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "::1"} == {str(item) for item in names.value.get_values_for_type(x509.IPAddress)}
    service_certificate(tmp_path, "store.example", NOW)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == made


def test_a_certificate_near_its_end_is_renewed_by_the_same_authority(tmp_path: Path) -> None:
    files = service_certificate(tmp_path, "localhost", NOW)
    authority, served = files.ca_file.read_bytes(), files.certificate_file.read_bytes()
    later = NOW + timedelta(days=certificate_days - renewal_days + 1)
    service_certificate(tmp_path, "localhost", later)
    assert files.ca_file.read_bytes() == authority
    assert files.certificate_file.read_bytes() != served


def test_another_host_needs_another_certificate(tmp_path: Path) -> None:
    files = service_certificate(tmp_path, "localhost", NOW)
    served = files.certificate_file.read_bytes()
    service_certificate(tmp_path, "10.0.0.7", NOW)
    assert files.certificate_file.read_bytes() != served


def test_an_authority_near_its_end_is_replaced_with_all_that_it_signed(tmp_path: Path) -> None:
    files = service_certificate(tmp_path, "localhost", NOW)
    authority, served = files.ca_file.read_bytes(), files.certificate_file.read_bytes()
    service_certificate(tmp_path, "localhost", NOW + timedelta(days=authority_days))
    assert files.ca_file.read_bytes() != authority
    assert files.certificate_file.read_bytes() != served


def test_a_start_that_was_cut_off_between_key_and_certificate_is_made_good(tmp_path: Path) -> None:
    files = service_certificate(tmp_path, "localhost", NOW)
    (tmp_path / "other").mkdir()
    other = service_certificate(tmp_path / "other", "localhost", NOW)
    files.key_file.write_bytes(other.key_file.read_bytes())
    service_certificate(tmp_path, "localhost", NOW)
    load_certificate(files.certificate_file, files.key_file)


def test_damaged_files_are_named_with_the_way_out(tmp_path: Path) -> None:
    files = service_certificate(tmp_path, "localhost", NOW)
    files.certificate_file.write_text("damaged")
    with pytest.raises(ConfigurationError, match="delete the folder"):
        service_certificate(tmp_path, "localhost", NOW)
