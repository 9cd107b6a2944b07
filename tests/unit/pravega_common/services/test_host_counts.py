from __future__ import annotations

from pravega_common.services.host_counts import HostCounts


def test_one_host_leaves_room_for_others() -> None:
    counts = HostCounts("writers", "are set up", 6, 4)
    assert [bool(counts.enter("one")) for _ in range(5)] == [False] * 4 + [True]
    assert "4 writers of one are set up, the limit of a host" in counts.enter("one")
    assert not counts.enter("other") and not counts.enter("third")
    assert "6 writers are set up, the limit of all" in counts.enter("fourth")
    counts.leave("one", 4)
    assert not counts.enter("one")
    assert (counts.total, counts.refused_total) == (3, 3)
