"""Keeps the limits of bytes a second of all scopes in one record, and a copy of it where the stores read it.

The record is derived: the limits of a scope are what its own record says. Whoever changes a scope brings its entry up
to date afterwards, within work that is repeated until it is done. The entry is made from the scope as it is read after
the record, and written only if the record is still that one, so a late writer never puts older limits in their place.
"""

from __future__ import annotations

from typing import Final

from controller_service.errors import QuotaExceeded
from controller_service.store.scope_store import BYTE_LIMITS_TABLE, ScopeStore, cas_limits
from controller_service.store.versioned_store import ABSENT, Versioned
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.cluster.byte_limits import (
    BYTE_LIMITS_KEY,
    AllByteLimits,
    ByteLimits,
    limited_scopes_max,
)
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.retrying import compare_and_set

_RECORD: Final = "limits"

NOTED = register("controller.byte_limits_noted")
COPIED = register("controller.byte_limits_copied")


class ByteLimitsRecord:
    """One record of at most ``limited_scopes_max`` scopes."""

    def __init__(self, store: ScopeStore, cpo: ControlPlaneOracle) -> None:
        self._store = store
        self._cpo = cpo

    async def require_room(self, scope: str) -> None:
        """``QuotaExceeded`` if the scope would be one too many. Those that are added at the same moment may be a few
        more, for which the record has room."""
        limits = _limits(await self._found()).scopes
        if scope not in limits and len(limits) >= limited_scopes_max:
            raise QuotaExceeded(
                f"scope {scope}: {len(limits)} scopes have limits of bytes a second already, and {limited_scopes_max} "
                "may; take the limits of another scope away"
            )

    async def refresh(self, scope: str) -> None:
        """Make the entry of a scope what the scope's own record says, and take it out without limits; the stores can
        read it afterwards. Idempotent."""

        async def write() -> None:
            found = await self._found()
            before = _limits(found)
            limits = dict(before.scopes)
            record = await self._store.scope(scope)
            quota = None if record is None else record.quota
            limits.pop(scope, None)
            if quota is not None and quota.limits_bytes:
                limits[scope] = ByteLimits(quota.bytes_in, quota.bytes_out)
            if limits != before.scopes:
                value = AllByteLimits(before.number + 1, limits).encode().encode()
                version = ABSENT if found is None else found.version
                await self._store.tables.put(BYTE_LIMITS_TABLE, _RECORD, value, version)

        await self._store.compare_and_set(f"byte limits of {scope}", write)
        failpoint(NOTED)
        await self.copy()
        failpoint(COPIED)

    async def copy(self) -> None:
        """Give the stores the record as it is. Who changes the record copies it, so a copy that another one overtakes
        is not missed."""

        async def write() -> None:
            standing = await self._cpo.get_constant(BYTE_LIMITS_KEY)
            found = await self._found()
            text = None if found is None else found.value.decode()
            if text is not None and text != standing:
                await self._cpo.replace_constant(BYTE_LIMITS_KEY, standing, text)

        await compare_and_set(write, cas_limits, self._store.clock, subject="the stores' record of byte limits")

    async def _found(self) -> Versioned | None:
        return await self._store.tables.get(BYTE_LIMITS_TABLE, _RECORD)


def _limits(found: Versioned | None) -> AllByteLimits:
    return AllByteLimits.decode(None if found is None else found.value.decode())
