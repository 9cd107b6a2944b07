"""Records of persistence clusters: golden text, what version 0.1.0 wrote, and damaged ones."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.services.cluster.codec import cluster_from_json, cluster_to_json
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup

GROUPS = (PersistenceGroup("a", ("h:1",)), PersistenceGroup("b", ("h:2", "h:3", "h:4")))


def test_the_record_is_golden() -> None:
    text = '{"groups":{"a":["h:1"],"b":["h:2","h:3","h:4"]},"name":"main","version":3}'
    cluster = PersistenceCluster("main", GROUPS, 3)
    assert cluster_to_json(cluster) == text
    assert cluster_from_json(text) == cluster


def test_what_0_1_0_registered_is_read() -> None:
    text = b'{"groups":{"group-0":["127.0.0.1:6379"]},"name":"pravega-spark"}'
    group = PersistenceGroup("group-0", ("127.0.0.1:6379",))
    assert cluster_from_json(text) == PersistenceCluster("pravega-spark", (group,), 1)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"name":"main"}', b'{"name":"main","groups":[]}'])
def test_damaged_records_are_refused(text: bytes) -> None:
    with pytest.raises(DataCorruption, match="persistence cluster"):
        cluster_from_json(text)
