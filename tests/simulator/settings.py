"""Draws the settings of a seed: the faults that may come, sizes and times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

from segment_service.contracts.data_log import frame_bytes_max
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.plog.entry import envelope_bytes
from segment_service.writer.config import WriterConfig
from tests.simulator.limits import (
    PLOG_LIMIT,
    WRITE_LIMIT,
    draw_journal_limits,
    draw_limits,
    draw_shared_limits,
    piece_bytes,
)

FAMILIES: Final = ("crash", "loss", "full", "damage", "repair")
"""``crash``: stores, servers, networks and Tier 2 fail in every way that loses nothing that was acknowledged.
``loss``: Tier 1 comes back older or empty. ``full``: Tier 1 fills up while Tier 2 is away. ``damage``: objects of
Tier 2 change or disappear. ``repair``: of three servers, one after the other loses its data and is repaired, at the end
sometimes two at once. A seed belongs to one family."""

EXPECTED: Final = FAMILIES
"""The families that must show no violation today. One with a known defect is left out until that is mended."""

pieces_per_event_max: Final = 8
"""Pieces that the longest event has: beyond it a seed does the same thing again, at a cost."""
pieces_per_read_max: Final = 40
"""The same of a read."""
pieces_per_s_max: Final = 12
"""What writers pace themselves to, so that a seed costs a second or two."""
pieces_per_s_to_fill: Final = 25
"""The same where Tier 1 is to fill up before the run ends."""

late_sources_share: Final = 0.1
"""Share of the seeds that have late sources, of those that may."""
small_write_bytes: Final = 1_000
"""The most that they write at once: nearly every transaction is several writes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes, times in virtual seconds."""

    seed: int
    family: str
    servers: int
    """Of Tier 1."""
    containers: int
    slots: int
    """Segments that live at the same time, each under a name of its own."""
    tables: int
    duration_s: float
    """Before everything is healed and checked."""
    block_bytes_max: int
    piece_bytes: int
    """What counts as one piece of an event."""
    pieces_per_s_max: int
    read_bytes_max: int
    pause_max_s: float
    """Between two appends of a writer."""
    cache_bytes: int
    unflushed_bytes_max: int
    checkpoints: CheckpointPolicy
    writer: WriterConfig
    metadata_table: MetadataTableConfig
    limits: dict[str, float]
    """Limits of the product, by name: see ``limits.py``."""
    plog_bytes: int
    reply_timeout_s: float
    heal_time_max_s: float
    shares_objects: bool
    """Whether small objects of Tier 2 share large ones."""
    has_late_sources: bool
    """Whether transactions are made to land in Tier 2 when their targets have a part of them: ``late_sources.py``."""
    cpo_shares_server: bool
    """Whether the control plane oracle lives on the server of Tier 1, and so shares its fate."""
    fault_pause_s: float
    """Mean time between two faults."""


def family_of(seed: int, families: tuple[str, ...]) -> str:
    """Half of the seeds crash, the rest is shared by the other families that are asked for."""
    others = [family for family in families if family != "crash"]
    if "crash" in families and (seed % 2 == 0 or not others):
        return "crash"
    return others[seed // 2 % len(others)]


def draw(seed: int, families: tuple[str, ...] = EXPECTED, servers: int | None = None) -> Settings:
    """``servers``: instead of the number that belongs to the seed."""
    rng = random.Random(f"settings {seed}")
    family = family_of(seed, families)
    big = rng.random() < 0.5
    unflushed = rng.choice((400_000, 1_500_000, 6_000_000))
    if family == "full":
        unflushed = 12_000_000
    limits = draw_limits(rng, large_pieces=family == "full") | draw_shared_limits(
        random.Random(f"{seed} shared limits")
    )
    limits |= draw_journal_limits(random.Random(f"{seed} journal limits"))
    shares_objects = random.Random(f"{seed} shares").random() < 0.5
    # Where objects are shared, a manifest of an earlier owner that lands late is none.
    has_late_sources = (
        family == "crash" and not shares_objects and random.Random(f"{seed} late sources").random() < late_sources_share
    )
    if has_late_sources:
        limits[WRITE_LIMIT] = small_write_bytes
    piece = piece_bytes(limits)
    return Settings(
        seed=seed,
        family=family,
        servers=3 if family == "repair" else servers or random.Random(f"{seed} servers").choice((1, 3)),
        containers=rng.choice((1, 1, 2)),
        slots=rng.randint(2, 4),
        tables=rng.choice((0, 1, 1)),
        duration_s=rng.uniform(25, 60) * (2 if family == "repair" else 1),
        block_bytes_max=min(60_000 if big or family == "full" else 3_000, piece * pieces_per_event_max),
        piece_bytes=piece,
        pieces_per_s_max=pieces_per_s_to_fill if family == "full" else pieces_per_s_max,
        read_bytes_max=piece * pieces_per_read_max,
        pause_max_s=0.3 if family == "full" else rng.choice((0.3, 0.8, 2.0)),
        cache_bytes=unflushed * 3 // 2 + rng.choice((50_000, 500_000, 4_000_000)),
        unflushed_bytes_max=unflushed,
        checkpoints=CheckpointPolicy(rng.choice((10, 40, 150)), rng.choice((60_000, 400_000)), rng.choice((1, 4))),
        writer=WriterConfig(
            flush_bytes=rng.choice((4_000, 60_000, 400_000)),
            flush_age_s=rng.choice((0.1, 0.4, 1.5)),
            transaction_age_s=min(rng.choice((0.1, 3.0)), 0.1 if has_late_sources else math.inf),
            index_age_ratio=rng.choice((1, 5)),
            quiet_age_ratio=random.Random(f"{seed} quiet").choice((1.0, 1.0, 1.0, 10.0)),
            quiet_log_bytes=random.Random(f"{seed} quiet bytes").choice((2_000, 4 << 20)),
            merge_age_s=random.Random(f"{seed} merge age").choice((0.0, 0.25)),
            burst_operations_min=random.Random(f"{seed} burst").choice((1, 50)),
            gather_s=random.Random(f"{seed} gather").choice((0.0, 0.25)),
            behind_bytes_max=rng.choice((200_000, 64 << 20)),
            flushes_at_once_max=rng.choice((1, 8)),
            small_flushes_at_once_max=random.Random(f"{seed} small flushes").choice((0, 20)),
            small_flush_bytes=random.Random(f"{seed} small flush").choice((2_000, 64 << 10)),
            retry_delay_max_s=2.0,
            tick_s=0.1,
            idle_segments_max=rng.choice((1, 50_000)),
        ),
        metadata_table=MetadataTableConfig(
            flush_age_s=rng.choice((0.1, 0.5, 2.0)),
            idle_s=rng.choice((0.05, 0.5, 3.0, 60.0)),
            look_s=rng.choice((0.05, 0.5)),
            active_max=rng.choice((1, 100_000)),
        ),
        limits=limits,
        plog_bytes=int(limits.get(PLOG_LIMIT, frame_bytes_max)) * rng.choice((1, 1, 4)) + envelope_bytes,
        reply_timeout_s=rng.choice((2.0, 10.0)),
        heal_time_max_s=rng.choice((5.0, 30.0)),
        shares_objects=shares_objects,
        has_late_sources=has_late_sources,
        cpo_shares_server=rng.random() < 0.5,
        fault_pause_s=rng.choice((2.0, 5.0, 10.0)),
    )
