"""Access entries: Pravega's resources, wildcards and order."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_common.errors import ConfigurationError
from pravega_common.resources import (
    ROOT,
    Permission,
    key_value_table_resource,
    reader_group_resource,
    scope_resource,
    stream_resource,
)
from pravega_common.services.security.access_entries import AccessEntries, AccessEntry, entries_max, resource_chars_max

READ, UPDATE, NONE = Permission.READ, Permission.READ_UPDATE, Permission.NONE


def test_resources_have_pravegas_names() -> None:
    assert (ROOT, scope_resource("a")) == ("prn::/", "prn::/scope:a")
    assert stream_resource("a", "b") == "prn::/scope:a/stream:b"
    assert reader_group_resource("a", "g") == "prn::/scope:a/reader-group:g"
    assert key_value_table_resource("a", "t") == "prn::/scope:a/key-value-table:t"


def test_what_has_the_name_of_a_stream_belongs_to_something() -> None:
    assert stream_resource("a", "_RGg") == reader_group_resource("a", "g")
    assert stream_resource("a", "_MARKb") == stream_resource("a", "b")
    assert stream_resource("a", "t_kvtable") == key_value_table_resource("a", "t")


@pytest.mark.parametrize(
    ("entries", "resource", "permission"),
    [
        ("prn::/scope:a/stream:b,READ_UPDATE", "prn::/scope:a/stream:b", UPDATE),
        ("prn::/scope:a/stream:b,READ_UPDATE", "prn::/scope:a/stream:bc", NONE),
        ("prn::/scope:a/stream:b,READ_UPDATE", "prn::/scope:a", NONE),
        ("prn::*,READ", "prn::/", READ),
        ("prn::*,READ", "prn::/scope:a/stream:b", READ),
        ("prn::/*,READ_UPDATE", "prn::/", UPDATE),
        ("prn::/scope:*,READ", "prn::/scope:a/reader-group:g", READ),
        ("prn::/scope:a/*,READ", "prn::/scope:a/stream:b", READ),
        ("prn::/scope:a/*,READ", "prn::/scope:a", NONE),
        ("prn::/scope:a/stream:x*,READ", "prn::/scope:a/stream:xy", READ),
        ("prn::/scope:a/stream:x.y,READ", "prn::/scope:a/stream:xzy", NONE),
        # The first that fits decides, also against the caller.
        ("prn::/scope:a/stream:b,READ;prn::*,READ_UPDATE", "prn::/scope:a/stream:b", READ),
        ("prn::/scope:a/*,NONE; prn::*,READ_UPDATE", "prn::/scope:a/stream:b", NONE),
        ("", "prn::/", NONE),
    ],
)
def test_the_first_entry_that_fits_decides(entries: str, resource: str, permission: Permission) -> None:
    parsed = AccessEntries.parse(entries)
    assert parsed.permission(resource) is permission
    assert parsed.permits(resource, permission)
    assert AccessEntries.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    ["scope:a,READ", "prn::/scope:a", "prn::/scope:a,WRITE", "prn::/scope:a,read", "prn::/,READ,READ", "*,READ_UPDATE"],
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="access entry"):
        AccessEntries.parse(text)
    with pytest.raises(ConfigurationError, match="the limit is"):
        AccessEntries.parse("prn::/,READ;" * (entries_max + 1))


@pytest.mark.parametrize("stars", [2, 30])
def test_no_name_makes_its_check_take_long(stars: int) -> None:
    """A caller chooses the names, and a controller serves nobody meanwhile: all ways to fit took hours."""
    entries = AccessEntries.parse("prn::/scope:" + "*a" * stars + "b,READ")
    assert entries.permission(stream_resource("s", "a" * (resource_chars_max - 100))) is NONE
    assert entries.permission(stream_resource("s", "/a" * 1_000 + "ab")) is READ
    everything = AccessEntries.parse("prn::*,READ_UPDATE")
    assert everything.permission(stream_resource("s", "a" * resource_chars_max)) is NONE


@given(
    st.text("ab*", max_size=8),
    st.text("ab", max_size=10),
)
def test_a_star_stands_for_any_text(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(pattern.split("*")), name) is not None
    found = AccessEntries([AccessEntry(ROOT + pattern, READ)]).permission(ROOT + name)
    assert (found is READ) == expected
