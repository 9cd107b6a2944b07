"""The connections that the limit on open files leaves room for."""

from __future__ import annotations

import resource

import pytest

from segment_service.config import SegmentStoreConfig
from segment_service.host.listener import connections_max_default
from segment_service.open_files import fitting, raise_open_files


@pytest.mark.parametrize(
    ("wanted", "files", "served"),
    [(16_384, 20_000, 16_384), (16_384, 17_472, 16_384), (16_384, 17_471, 16_383), (16_384, 1_024, 512), (4, 2, 1)],
)
def test_connections_fit_into_the_files(wanted: int, files: int, served: int) -> None:
    found = fitting(wanted, files)
    assert found.connections_max == served
    assert bool(found.warning) == (served < wanted)
    if found.warning:
        assert f"{files} files (ulimit -n)" in found.warning and str(wanted + 64 + 1_024) in found.warning


def test_the_own_limit_is_raised_as_far_as_the_system_lets_it() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2_000, before[1]), before[1]))
        assert raise_open_files(2_000).connections_max == fitting(2_000, before[1]).connections_max
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(3_088, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_defaults_agree() -> None:
    assert SegmentStoreConfig().store.connections_max == connections_max_default
