"""Assigns containers to stores, moving as few as possible (docs/controller-api.md 9), as pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def balance(container_count: int, stores: Collection[str], current: Mapping[int, str]) -> dict[int, str]:
    """Owners of all containers: every store gets the same number, give or take one.

    Containers stay where they are as far as that allows: those without a living owner go to the stores with the fewest,
    then one at a time moves from the fullest store to the emptiest. No stores: no owners.
    """
    if not stores:
        return {}
    held: dict[str, list[int]] = {store: [] for store in sorted(stores)}
    homeless = []
    for container in range(container_count):
        owner = current.get(container)
        if owner in held:
            held[owner].append(container)
        else:
            homeless.append(container)
    for container in homeless:
        min(held.values(), key=len).append(container)
    while True:
        emptiest, fullest = min(held.values(), key=len), max(held.values(), key=len)
        if len(fullest) - len(emptiest) <= 1:
            break
        emptiest.append(fullest.pop())
    return {container: store for store, containers in held.items() for container in containers}
