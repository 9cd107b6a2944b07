"""Says how every ``VersionedStore`` behaves."""

from __future__ import annotations

import pytest

from controller_service.store.versioned_store import ABSENT, ANY_VERSION, Put, VersionedStore
from pravega_common.errors import SegmentNotFound, VersionConflict


class VersionedStoreContract:
    """A subclass gives the fixture ``store``."""

    async def test_a_missing_table_is_an_error(self, store: VersionedStore) -> None:
        with pytest.raises(SegmentNotFound):
            await store.get("absent", "key")
        with pytest.raises(SegmentNotFound):
            await store.put("absent", "key", b"value", ABSENT)
        with pytest.raises(SegmentNotFound):
            await store.scan("absent")

    async def test_tables_are_made_and_deleted_idempotently(self, store: VersionedStore) -> None:
        await store.create_table("a/table")
        await store.put("a/table", "key", b"value", ABSENT)
        await store.create_table("a/table")
        assert await store.get("a/table", "key") is not None
        await store.delete_table("a/table")
        await store.delete_table("a/table")
        with pytest.raises(SegmentNotFound):
            await store.get("a/table", "key")

    async def test_compare_and_set(self, store: VersionedStore) -> None:
        await store.create_table("t")
        assert await store.get("t", "key") is None
        first = await store.put("t", "key", b"one", ABSENT)
        with pytest.raises(VersionConflict):
            await store.put("t", "key", b"other", ABSENT)
        second = await store.put("t", "key", b"two", first)
        assert second != first
        with pytest.raises(VersionConflict):
            await store.put("t", "key", b"late", first)
        found = await store.get("t", "key")
        assert found is not None
        assert (found.value, found.version) == (b"two", second)

    async def test_a_put_of_the_same_value_gives_a_new_version(self, store: VersionedStore) -> None:
        """Others who read the value before write it no more."""
        await store.create_table("t")
        first = await store.put("t", "key", b"value", ABSENT)
        assert await store.put("t", "key", b"value", first) != first
        with pytest.raises(VersionConflict):
            await store.put("t", "key", b"late", first)

    async def test_an_update_of_an_absent_key_conflicts(self, store: VersionedStore) -> None:
        await store.create_table("t")
        version = await store.put("t", "key", b"value", ABSENT)
        await store.remove("t", "key", version)
        with pytest.raises(VersionConflict):
            await store.put("t", "key", b"again", version)
        with pytest.raises(VersionConflict):
            await store.remove("t", "key", version)

    async def test_unconditional_put_and_removal(self, store: VersionedStore) -> None:
        await store.create_table("t")
        await store.put("t", "key", b"one", ANY_VERSION)
        await store.put("t", "key", b"two", ANY_VERSION)
        await store.remove("t", "key")
        await store.remove("t", "key")
        assert await store.get("t", "key") is None

    async def test_several_keys_are_removed_at_once_whether_they_are_there_or_not(self, store: VersionedStore) -> None:
        await store.create_table("t")
        await store.put_many("t", [Put(key, b"x", ABSENT) for key in ("a", "b", "c")])
        await store.remove("t", "b")
        await store.remove_many("t", ["a", "b", "never"])
        await store.remove_many("t", [])
        assert [value is not None for value in await store.get_many("t", ["a", "b", "c"])] == [False, False, True]
        with pytest.raises(SegmentNotFound):
            await store.remove_many("missing", ["a"])

    async def test_a_version_is_never_given_twice_to_one_key(self, store: VersionedStore) -> None:
        await store.create_table("t")
        first = await store.put("t", "key", b"one", ABSENT)
        await store.remove("t", "key")
        second = await store.put("t", "key", b"one", ABSENT)
        assert first != second
        with pytest.raises(VersionConflict):
            await store.remove("t", "key", first)

    async def test_put_many_is_all_or_nothing(self, store: VersionedStore) -> None:
        await store.create_table("t")
        version = await store.put("t", "a", b"1", ABSENT)
        with pytest.raises(VersionConflict):
            await store.put_many("t", [Put("b", b"2", ABSENT), Put("a", b"3", version + 1000)])
        assert await store.get("t", "b") is None
        versions = await store.put_many("t", [Put("b", b"2", ABSENT), Put("a", b"3", version)])
        found = await store.get_many("t", ["a", "b", "c"])
        assert [entry and entry.value for entry in found] == [b"3", b"2", None]
        assert [entry.version for entry in found if entry is not None] == [versions[1], versions[0]]

    async def test_scan_returns_every_entry_once_in_pages(self, store: VersionedStore) -> None:
        await store.create_table("t")
        expected = {f"key-{number}": b"%d" % number for number in range(25)}
        await store.put_many("t", [Put(key, value, ABSENT) for key, value in expected.items()])
        found: list[tuple[str, bytes]] = []
        token = b""
        for _ in range(30):
            page = await store.scan("t", token, count_max=7)
            assert len(page.entries) <= 7
            found += [(key, entry.value) for key, entry in page.entries]
            token = page.continuation
            if not token:
                break
        assert len(found) == 25
        assert dict(found) == expected

    async def test_scan_of_an_empty_table(self, store: VersionedStore) -> None:
        await store.create_table("t")
        page = await store.scan("t")
        assert page.entries == ()
        assert page.continuation == b""

    async def test_keys_of_any_text(self, store: VersionedStore) -> None:
        await store.create_table("t")
        await store.put("t", "scope/ströme ✓", b"\x00\xff", ABSENT)
        found = await store.get("t", "scope/ströme ✓")
        assert found is not None
        assert found.value == b"\x00\xff"
