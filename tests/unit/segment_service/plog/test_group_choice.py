"""New plogs go to the least used group."""

from __future__ import annotations

from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_audit import RedisMemory
from segment_service.plog.group_choice import ChoiceByUse, FixedChoice

MIB = 1024 * 1024
A = PersistenceGroup("a", ("a1", "a2", "a3"))
B = PersistenceGroup("b", ("b1", "b2", "b3"))
NAMES = ("b", "a")


def choice(preferred: tuple[PersistenceGroup, ...] = (A, B), limit: int = 0, /, **used: int) -> ChoiceByUse:
    made = ChoiceByUse(preferred)
    made.saw(PersistenceCluster("main", (A, B), 1))
    made.memory.update({server: RedisMemory(bytes_used, limit) for server, bytes_used in used.items()})
    return made


def test_without_samples_containers_and_plogs_are_spread() -> None:
    made = choice()
    assert [made.choose(NAMES, container, MIB) for container in (0, 0, 1, 1)] == ["a", "b", "b", "a"]
    assert [FixedChoice().choose(NAMES, container, MIB) for container in (0, 1, 2)] == ["a", "b", "a"]


def test_the_group_whose_fullest_server_is_least_used_gets_the_plog() -> None:
    used = {"a1": 10 * MIB, "a2": 90 * MIB, "a3": 10 * MIB, "b1": 50 * MIB, "b2": 50 * MIB, "b3": 50 * MIB}
    assert choice(**used).choose(NAMES, 0, MIB) == "b"


def test_servers_of_different_size_are_compared_by_their_limits() -> None:
    used = dict.fromkeys(("a1", "a2", "a3"), 50 * MIB) | dict.fromkeys(("b1", "b2", "b3"), 60 * MIB)
    made = choice((A, B), 100 * MIB, **used)
    made.memory.update({server: RedisMemory(60 * MIB, 1000 * MIB) for server in B.servers})
    assert made.choose(NAMES, 0, MIB) == "b"
    made.memory["a1"] = RedisMemory(50 * MIB, 0)
    assert made.choose(NAMES, 0, MIB) == "a", "one without a limit: bytes count"


def test_plogs_chosen_since_the_last_sample_count_until_they_show() -> None:
    used = dict.fromkeys(A.servers, MIB) | dict.fromkeys(B.servers, 150 * MIB)
    made = choice(**used)
    assert [made.choose(NAMES, 0, 64 * MIB) for _ in range(5)] == ["a", "a", "a", "b", "a"]
    for _ in range(200):
        made.fade()
    assert made.choose(NAMES, 0, 64 * MIB) == "a"


def test_a_group_without_a_majority_is_the_last_choice() -> None:
    used = {"a1": MIB, "b1": 900 * MIB, "b2": 900 * MIB}
    assert choice(**used).choose(NAMES, 0, MIB) == "b"
    assert choice(a1=MIB, b1=900 * MIB).choose(NAMES, 0, MIB) == "a"


def test_a_group_that_the_settings_do_not_name_gets_no_new_plogs() -> None:
    made = choice((B,), **dict.fromkeys(A.servers, MIB), **dict.fromkeys(B.servers, 900 * MIB))
    assert made.candidates(NAMES) == ["b"]
    assert made.choose(NAMES, 0, MIB) == "b"
    assert made.needed_servers(("a",)) == {*A.servers, *B.servers}, "its servers are asked"
    assert made.needed(()) == {"b": B.servers}, "and needed as long as some log has something there"
    assert made.needed(("a",)) == {"a": A.servers, "b": B.servers}
    assert made.choose(("a",), 0, MIB) == "a", "unless there is no other"
