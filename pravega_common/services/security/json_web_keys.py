"""Keeps the public keys of an identity provider, from a JWKS file or an https address, and follows their rotation."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from pravega_common.errors import ConfigurationError, Unavailable
from pravega_common.runtime.clock import Clock

refresh_period_s: Final = 60.0
"""How often the keys are read again: for so long a key that was taken out is still believed."""
unknown_key_pause_s: Final = 10.0
"""Least time between two looks for a key that is not known: callers that invent key ids cause no more."""
unread_max_s: Final = 3_600.0
"""How long keys are believed that cannot be read again."""
fetch_time_max_s: Final = 5.0
document_bytes_max: Final = 256 * 1024
keys_max: Final = 100
key_id_chars_max: Final = 200
rsa_bits_min: Final = 2_048
rsa_bits_max: Final = 8_192

Source = Callable[[], Awaitable[bytes]]
"""Reads the document; ``OSError`` or ``TimeoutError`` where it cannot be had."""


@dataclass(frozen=True, slots=True, eq=False)
class WebKey:
    """A public key, with the one algorithm that is believed with it."""

    public: Any
    algorithm: str


def parse_keys(document: bytes) -> dict[str, WebKey]:
    """The usable keys of a JWKS by id: RSA for RS256, P-256 for ES256. Keys of other kinds, for encryption, or without
    an id are left out; ``ConfigurationError`` for what is no JWKS, is too large, or has none that is usable."""
    if len(document) > document_bytes_max:
        raise ConfigurationError(f"a JWKS may have {document_bytes_max} bytes")
    try:
        listed = json.loads(document)["keys"]
        found = {str(item["kid"]): key for item in listed[: keys_max + 1] if (key := _usable(item)) is not None}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"this is no JWKS: {type(error).__name__}") from error
    if len(listed) > keys_max:
        raise ConfigurationError(f"the JWKS has {len(listed)} keys; the limit is {keys_max}")
    if not found:
        raise ConfigurationError("the JWKS has no key with an id for RS256 (2,048 bits or more) or ES256")
    return found


def _usable(item: Mapping[str, Any]) -> WebKey | None:
    key_id = item.get("kid")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= key_id_chars_max or item.get("use", "sig") != "sig":
        return None
    try:
        public = jwt.PyJWK.from_dict(dict(item)).key
    except jwt.PyJWTError:
        return None
    if isinstance(public, RSAPublicKey) and rsa_bits_min <= public.key_size <= rsa_bits_max:
        algorithm = "RS256"
    elif isinstance(public, EllipticCurvePublicKey) and isinstance(public.curve, SECP256R1):
        algorithm = "ES256"
    else:
        return None
    return WebKey(public, algorithm) if item.get("alg", algorithm) == algorithm else None


class JsonWebKeys:
    """The present keys. One look at a time; callers who know their key's id never wait for one that fails."""

    def __init__(self, source: Source, name: str, clock: Clock, known: Mapping[str, WebKey] | None = None) -> None:
        """``name``: the file or address, for log lines; ``known``: keys that were read already."""
        self._source = source
        self._name = name
        self._clock = clock
        self._keys = dict(known or {})
        self._read_s = clock.monotonic_s() if known else float("-inf")
        self._looked_s = self._read_s
        self._looking: asyncio.Future[None] | None = None
        """The look that is under way."""
        self._log = structlog.get_logger(service="authentication")

    async def key(self, key_id: str) -> WebKey | None:
        """The key of an id; ``Unavailable`` while no keys can be read."""
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= refresh_period_s and (key_id not in self._keys or self._looking is None):
            await self._look(refresh_period_s)
        if key_id not in self._keys:
            await self._look(unknown_key_pause_s)
        if self._clock.monotonic_s() - self._read_s > unread_max_s:
            raise Unavailable(f"the keys of {self._name} could not be read for {unread_max_s:.0f} s: see the log")
        return self._keys.get(key_id)

    async def _look(self, pause_s: float) -> None:
        """Read the keys again, unless somebody did within the pause."""
        if self._looking is None:
            if self._clock.monotonic_s() - self._looked_s < pause_s:
                return
            self._looked_s = self._clock.monotonic_s()
            # Not by the caller itself, who may wait for less time than this takes: then nobody ever got the keys.
            self._looking = asyncio.ensure_future(self._read())
            self._looking.add_done_callback(self._ended)
        await asyncio.shield(self._looking)

    def _ended(self, look: asyncio.Future[None]) -> None:
        self._looking = None
        if not look.cancelled():
            look.exception()  # marks it retrieved: all who waited may have gone

    async def _read(self) -> None:
        """Read the keys. What cannot be read changes nothing."""
        try:
            found = parse_keys(await self._source())
        except (OSError, ConfigurationError) as error:
            reason = f"{type(error).__name__}: {error}"
            self._log.warning("keys of the identity provider cannot be read", source=self._name, error=reason)
            return
        self._read_s = self._clock.monotonic_s()
        if _numbers(found) != _numbers(self._keys):
            self._log.info("keys of the identity provider", source=self._name, keys=sorted(found))
            self._keys = found


def _numbers(keys: Mapping[str, WebKey]) -> dict[str, object]:
    return {key_id: key.public.public_numbers() for key_id, key in keys.items()}


def open_keys(place: str, ca_file: str, clock: Clock) -> JsonWebKeys:
    """The keys of a file, which is read now, or of an ``https://`` address, which is asked when the first caller comes.

    ``ca_file``: who signed its certificate; empty for the system's authorities. ``ConfigurationError``.
    """
    if "://" not in place:
        path = Path(place)
        try:
            known = parse_keys(_document(path))
        except OSError as error:
            raise ConfigurationError(f"security.jwt_keys: {place} cannot be read: {error.strerror}") from error
        return JsonWebKeys(lambda: asyncio.to_thread(_document, path), place, clock, known)
    try:
        trust = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ConfigurationError(f"security.jwt_ca_file: {ca_file} cannot be used: {error}") from error
    return JsonWebKeys(lambda: _fetched(place, trust), place, clock)


def _document(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(document_bytes_max + 1)


async def _fetched(address: str, trust: ssl.SSLContext) -> bytes:
    import aiohttp

    limit = aiohttp.ClientTimeout(total=fetch_time_max_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(address, ssl=trust, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise OSError(f"status {answer.status}")
            content = b""
            async for part in answer.content.iter_chunked(65_536):
                content += part
                if len(content) > document_bytes_max:
                    break
            return content
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from error
