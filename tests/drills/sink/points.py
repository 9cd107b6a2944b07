"""Defines a crash point of the sink: a small story about runs that are hurt together, and what is left is counted for
each of them alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.drills.sink.bench import Bench
from tests.drills.sink.runs import Run

Story = Callable[[Bench, list[Run]], None]


@dataclass(frozen=True)
class Point:
    """``at_least_once``: whether the moment exists without transactions too."""

    name: str
    what: str
    story: Story
    at_least_once: bool = False


POINTS: dict[str, Point] = {}


def point(name: str, what: str, *, at_least_once: bool = False) -> Callable[[Story], Story]:
    def add(story: Story) -> Story:
        POINTS[name] = Point(name, what, story, at_least_once)
        return story

    return add
