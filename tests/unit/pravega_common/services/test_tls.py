"""Serves certificates that change, break and end, over real handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.client_tls import ClientTls
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.tls import (
    ServerTls,
    TlsSection,
    check_period_s,
    load_certificate,
    problem_chars_max,
    problems_of,
    server_context,
)
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@contextlib.asynccontextmanager
async def listening(tls: ServerTls) -> AsyncIterator[int]:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=tls.context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def served_serial(port: int, authority: Authority) -> str:
    context = ClientTls.from_file(authority.file).context
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    assert await reader.read() == b"hello"
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["serialNumber"])


async def test_a_new_certificate_is_served_without_a_restart(authority: Authority) -> None:
    clock = ManualClock()
    tls = ServerTls(authority.issue().section, clock)
    await tls.start()
    async with listening(tls) as port:
        old = await served_serial(port, authority)
        assert await served_serial(port, authority) == old
        authority.issue()
        await clock.advance(check_period_s + 1)
        assert await served_serial(port, authority) != old
    await tls.stop()


async def test_a_broken_certificate_is_reported_once_and_the_old_one_stays(authority: Authority) -> None:
    files = authority.issue()
    tls = ServerTls(files.section, SystemClock())
    async with listening(tls) as port:
        old = await served_serial(port, authority)
        files.certificate.write_text("no certificate")
        with capture_logs() as logs:
            tls.check_files()
            tls.check_files()
        assert [line["log_level"] for line in logs] == ["error"]
        assert "no certificate in PEM form" in logs[0]["error"]
        assert await served_serial(port, authority) == old
        # The key of another certificate, as in the middle of a replacement of both.
        files.certificate.write_bytes(authority.issue("other").certificate.read_bytes())
        with capture_logs() as logs:
            tls.check_files()
        assert "does not belong to" in logs[0]["error"]
        assert await served_serial(port, authority) == old
        authority.issue()
        tls.check_files()
        assert await served_serial(port, authority) != old


def test_new_files_that_cannot_be_used_are_a_problem_until_good_ones_come(authority: Authority) -> None:
    files = authority.issue(days=30)
    tls = ServerTls(files.section, SystemClock())
    kept = files.certificate.read_bytes()
    for wrong, words in (
        (b"no certificate", "no certificate in PEM form"),
        (authority.issue("other").certificate.read_bytes(), "does not belong to"),
    ):
        files.certificate.write_bytes(wrong)
        tls.check_files()
        (problem,) = tls.problems()
        assert problem.code == "certificate-refused" and words in problem.text and not problem.stops_work
        assert "the old one, which ends on 20" in problem.text and "both files" in problem.remedy
        assert len(problem.text) <= problem_chars_max
    files.certificate.write_bytes(kept)
    tls.check_files()
    assert tls.problems() == []


def test_a_key_whose_mode_was_wrong_is_looked_at_again_though_it_did_not_change(authority: Authority) -> None:
    tls = ServerTls(authority.issue(days=30).section, SystemClock())
    files = authority.issue(days=30)
    files.key.chmod(0o644)
    tls.check_files()
    assert "has mode 0644" in tls.problems()[0].text
    files.key.chmod(0o600)
    with capture_logs() as logs:
        tls.check_files()
    assert tls.problems() == [] and "serving a new certificate" in logs[0]["event"]


async def test_files_that_vanish_leave_the_old_certificate(authority: Authority) -> None:
    files = authority.issue()
    tls = ServerTls(files.section, SystemClock())
    files.certificate.unlink()
    with capture_logs() as logs:
        tls.check_files()
    assert "No such file" in logs[0]["error"]
    async with listening(tls) as port:
        assert await served_serial(port, authority)


@pytest.mark.parametrize("when", ["before it is loaded", "after it was loaded"])
def test_a_file_that_vanishes_while_it_is_read_leaves_the_old_certificate(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A tool that renews a certificate may remove the old file before it puts the new one there."""
    files = authority.issue()
    served = ServerTls(files.section, ManualClock())
    old = served.certificate
    authority.issue()

    def removed_meanwhile(certificate_file: Path, key_file: Path) -> ssl.SSLContext:
        if when == "before it is loaded":
            certificate_file.unlink()
        context = server_context(certificate_file, key_file)
        certificate_file.unlink()
        return context

    with monkeypatch.context() as patched:
        patched.setattr("pravega_common.services.tls.server_context", removed_meanwhile)
        served.check_files()
    assert served.certificate is old
    assert [problem.code for problem in served.problems()] == ["certificate-refused"]
    authority.issue()
    served.check_files()
    assert served.certificate is not old and not served.problems()


async def test_a_certificate_near_its_end_is_warned_about_once_a_day(authority: Authority) -> None:
    with capture_logs() as logs:
        tls = ServerTls(authority.issue(days=5).section, SystemClock())
        await tls.start()
        await eventually(lambda: any("ends soon" in line["event"] for line in logs))
        tls._warn_of_expiry()
        await tls.stop()
    assert [line["log_level"] for line in logs if "ends soon" in line["event"]] == ["warning"]


@pytest.mark.parametrize(
    ("days", "words"),
    [(30, None), (15, None), (5, r"ends in 4 days, on \d{4}-\d\d-\d\d"), (-1, r"ended on \d{4}-.*: it is refused")],
)
def test_the_problem_of_a_certificate_says_when_it_ends(authority: Authority, days: int, words: str | None) -> None:
    files = authority.issue(days=days)
    problems = problems_of(ServerTls(files.section, SystemClock()))
    if words is None:
        assert not problems
        return
    (problem,) = problems
    assert problem.code == "certificate-ends" and problem.remedy and not problem.stops_work
    assert re.fullmatch(f"the certificate {files.certificate} {words}", problem.text)


def test_a_service_without_tls_has_no_problem_with_it() -> None:
    assert problems_of(None) == []


async def test_tls_before_1_2_is_refused(authority: Authority) -> None:
    tls = ServerTls(authority.issue().section, SystemClock())
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(authority.file)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with listening(tls) as port:
        # A server that fails a handshake hangs up, as a rule without a word.
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port, ssl=old)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660])
def test_a_key_that_others_may_use_is_refused(authority: Authority, mode: int) -> None:
    files = authority.issue()
    files.key.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"chmod 600"):
        load_certificate(files.certificate, files.key)


def test_a_key_that_a_group_may_read_is_accepted(authority: Authority) -> None:
    files = authority.issue()
    files.key.chmod(0o640)
    assert load_certificate(files.certificate, files.key).key_pem == files.key.read_bytes()


def test_files_that_cannot_be_served_are_named(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue()
    with pytest.raises(ConfigurationError, match=r"tls\.key_file = .*No such file"):
        ServerTls(TlsSection(certificate_file=str(files.certificate), key_file=str(tmp_path / "none")), SystemClock())
    with pytest.raises(ConfigurationError, match=r"tls\.key_file .*does not belong"):
        load_certificate(files.certificate, authority.issue("other").key)


def test_one_file_without_the_other_is_a_mistake() -> None:
    assert TlsSection().problems() == [] and not TlsSection().is_served
    assert TlsSection(certificate_file="a").problems() == [
        "tls.certificate_file is set and tls.key_file is not: TLS needs both"
    ]
    assert TlsSection(key_file="a").problems() == [
        "tls.key_file is set and tls.certificate_file is not: TLS needs both"
    ]
