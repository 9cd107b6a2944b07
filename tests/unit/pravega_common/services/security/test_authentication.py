"""The password file and who is known by it: right, wrong, changed, too many, and that nothing secret is shown."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path

import pytest

from pravega_common.errors import AuthenticationFailed, ConfigurationError, Throttled
from pravega_common.resources import Permission
from pravega_common.services.security import authentication
from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.authentication import (
    PasswordAuthentication,
    checks_at_once_max,
    failed_try_pause_s,
)
from pravega_common.services.security.password_file import HashedPassword, User, read_users, write_users
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock

SECRET = "planted-secret-1f3a"
ENTRIES = "prn::/scope:s/stream:t,READ"


def user(name: str, password: str = SECRET, entries: str = ENTRIES) -> User:
    return User(name, HashedPassword.of(password.encode()), AccessEntries.parse(entries))


def header(name: str, password: str = SECRET) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    write_users(path, {"alice": user("alice")})
    return path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def refused(known: PasswordAuthentication, clock: ManualClock, given: str, host: str = "") -> str:
    """The refusal, which comes only when the clock is moved."""
    asked = asyncio.ensure_future(known.principal(given, host))
    await eventually(lambda: bool(clock._sleepers) or asked.done(), "the pause")
    assert not asked.done()
    await clock.advance(failed_try_pause_s)
    with pytest.raises(AuthenticationFailed) as raised:
        await asked
    return str(raised.value)


async def test_who_has_the_password_is_known_with_the_entries(file: Path, clock: ManualClock) -> None:
    known = PasswordAuthentication(file, clock)
    found = await known.principal(header("alice"))
    assert found.name == "alice" and found.entries.permits("prn::/scope:s/stream:t", Permission.READ)
    assert SECRET not in f"{vars(known)}"


async def test_wrong_credentials_are_refused_slowly_and_alike(file: Path, clock: ManualClock) -> None:
    known = PasswordAuthentication(file, clock)
    texts = {
        await refused(known, clock, given)
        for given in (
            header("alice", "wrong"), header("nobody"), header("alice", ""), "Basic !!!", "Basic", "Bearer x",
            "Basic " + "x" * 10_000, header("älice"),
        )
    }  # fmt: skip
    assert texts == {"the user or the password is wrong"}
    with pytest.raises(AuthenticationFailed, match="no credentials"):
        await known.principal("")


async def test_a_password_is_hashed_once(file: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    known = PasswordAuthentication(file, clock)
    await known.principal(header("alice"))
    monkeypatch.setattr(HashedPassword, "matches", lambda *_: pytest.fail("hashed again"))
    assert (await known.principal(header("alice"))).name == "alice"


async def test_changes_of_the_file_count_within_a_second(file: Path, clock: ManualClock) -> None:
    known = PasswordAuthentication(file, clock)
    await known.principal(header("alice"))
    write_users(file, {"alice": user("alice", "new-password"), "bob": user("bob")})
    await clock.advance(1.1)
    assert (await known.principal(header("bob"))).name == "bob"
    await refused(known, clock, header("alice"))
    assert (await known.principal(header("alice", "new-password"))).name == "alice"
    await asyncio.to_thread(file.write_text, "broken")
    await clock.advance(1.1)
    assert (await known.principal(header("bob"))).name == "bob"
    write_users(file, {})
    await clock.advance(1.1)
    await refused(known, clock, header("bob"))


async def test_tries_at_a_time_are_bounded(file: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "tries_at_once_max", 2)
    known = PasswordAuthentication(file, clock)
    await known.principal(header("alice"))
    waiting = [asyncio.ensure_future(known.principal(header("x"))) for _ in range(2)]
    await eventually(lambda: len(clock._sleepers) == 2, "two failed tries")
    with pytest.raises(Throttled, match="2 callers"):
        await known.principal(header("y"))
    assert (await known.principal(header("alice"))).name == "alice", "who is known waits for nobody"
    await clock.advance(failed_try_pause_s)
    assert [type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)] == [AuthenticationFailed] * 2


async def test_tries_of_one_host_leave_room_for_others(
    file: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "tries_at_once_max", 4)
    monkeypatch.setattr(authentication, "tries_at_once_per_host_max", 2)
    known = PasswordAuthentication(file, clock)
    wrong = [asyncio.ensure_future(known.principal(header(f"x{number}"), "10.0.0.1")) for number in range(10)]
    await eventually(lambda: len(clock._sleepers) == 2, "two failed tries")
    assert (await known.principal(header("alice"), "10.0.0.2")).name == "alice"
    with pytest.raises(Throttled, match=r"2 callers of 10\.0\.0\.1 are being authenticated, the limit of a host"):
        await known.principal(header("bob"), "10.0.0.1")
    await clock.advance(failed_try_pause_s)
    outcomes = [type(one) for one in await asyncio.gather(*wrong, return_exceptions=True)]
    assert outcomes == [AuthenticationFailed] * 2 + [Throttled] * 8
    await refused(known, clock, header("bob"), "10.0.0.1")  # Its tries have ended, so it is checked again.


async def test_callers_who_go_away_leave_no_more_hashes_to_be_made(
    file: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = PasswordAuthentication(file, clock)
    made, may_end = threading.Semaphore(0), threading.Event()
    begun: list[bytes] = []

    def matches(_: HashedPassword, password: bytes) -> bool:
        begun.append(password)
        made.release()
        may_end.wait(10)
        return password == SECRET.encode()

    monkeypatch.setattr(HashedPassword, "matches", matches)
    for number in range(6):
        call = asyncio.ensure_future(known.principal(header("alice", f"guess-{number}")))
        if number < checks_at_once_max:
            assert await asyncio.to_thread(made.acquire, timeout=5)
        for _ in range(20):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    good = asyncio.ensure_future(known.principal(header("alice")))
    assert not await asyncio.to_thread(made.acquire, timeout=0.2), "another hash was begun beside those"
    may_end.set()
    assert (await good).name == "alice"
    assert begun == [b"guess-0", b"guess-1", SECRET.encode()]


def test_a_file_is_written_for_its_owner_alone_and_read_back(file: Path) -> None:
    assert SECRET not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    found = read_users(file)
    assert list(found) == ["alice"] and str(found["alice"].entries) == ENTRIES
    assert found["alice"].password.matches(SECRET.encode()) and not found["alice"].password.matches(b"other")
    assert found["alice"].password.text not in repr(found["alice"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("alice", "line 1"),
        (":scrypt$14$8$1$AA==$AA==:", "user name"),
        ("alice:plain:prn::/,READ", "is not scrypt"),
        ("alice:scrypt$30$8$1$AA==$AA==:", "costs too much"),
        ("alice:scrypt$14$9999$1$AA==$AA==:", "costs too much"),
        ("alice:scrypt$14$8$1$AA==$AA==:prn::/,WRITE", "access entry"),
        ("a:scrypt$14$8$1$AA==$AA==:\na:scrypt$14$8$1$AA==$AA==:", "a second time"),
    ],
)
def test_a_malformed_file_is_refused(file: Path, line: str, reason: str) -> None:
    file.write_text(line)
    with pytest.raises(ConfigurationError, match=reason):
        read_users(file)


def test_a_file_that_others_may_read_is_refused(file: Path) -> None:
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_users(file)
