"""Limits of the product that most seeds make small, so that a short run meets what a large cluster does."""

from __future__ import annotations

import contextlib
import importlib
import random
from collections.abc import Iterator, Mapping
from typing import Final
from unittest import mock

SMALL: Final[Mapping[str, tuple[float, ...]]] = {
    "container.table_maps.sweep_delay_s": (0.5, 5.0),
    "durable_log.data_frame_builder._entries_end_max": (500, 4_000, 40_000),
    "attribute_index.eviction.flush_count_max": (1, 2),
    "metadata.held_attributes.held_max": (0, 1, 2),
    "metadata.held_attributes.many_min": (1,),
    "metadata_table.metadata_table.flush_count_max": (2,),
    "plog.plog_client.read_page_bytes": (5_000, 100_000),
    "read_index.fetch_budget.fetch_bytes_max": (1_000, 30_000),
    "read_index.storage_fetch.fetch_alignment": (100, 4_096),
    "read_index.fetch_budget.read_ahead_bytes": (10_000,),
    "read_index.fetch_budget.scan_ahead_bytes_max": (40_000,),
    "read_index.fetch_budget.scan_fetch_bytes_max": (20_000,),
    "sorted_runs.merging.merged_runs_min": (2,),
    "sorted_runs.run_writer.block_bytes": (200,),
    "sorted_runs.run_writer.file_bytes_max": (500,),
    "storage.compaction.joined_bytes_max": (20_000, 200_000),
    "storage.compaction.run_chunks_min": (2, 4),
    "storage.garbage.gathering_time_s": (0.05,),
    "storage.garbage.names_per_barrier_max": (3,),
    "storage.garbage.names_per_deletion_max": (2,),
    "storage.manifest_store.views_max": (2,),
    "storage.orphan_sweep.retry_delay_s": (3.0,),
    "storage.orphan_sweep.start_delay_s": (0.5, 5.0),
    "storage.rolling_storage.read_pieces_at_once_max": (2,),
    "storage.segment_view.delta_chunks_max": (2, 10),
    "tables.compactor.compaction_read_bytes_max": (3_000,),
    "tables.compactor.compaction_copy_bytes_max": (500, 20_000),
    "tables.key_index.value_inline_bytes_max": (100,),
    "tables.log_reader.log_read_bytes": (2_000,),
    "tables.log_reader.records_per_turn": (3,),
    "tables.paged_index.cached_keys_max": (2,),
    "tables.paged_index.changed_keys_max": (3, 5),
    "tables.paged_index.flush_keys": (1, 2),
    "tables.paged_index.flush_log_bytes": (3_000,),
    "tables.paging.keys_in_memory_max": (0, 2),
    "tables.table_segment.compaction_bytes_min": (2_000, 20_000),
    "writer.segment_aggregator.write_bytes_max": (1_000, 30_000),
}
"""Names below ``segment_service``, with the values to draw from."""
SHARED: Final[Mapping[str, tuple[float, ...]]] = {
    "sorted_runs.merging.runs_max": (12,),
    "sorted_runs.sorted_run_map.runs_max": (12,),
    "storage.rolling_storage.shared_object_bytes_max": (200, 1_000, 64 << 10),
    "storage.shared_objects.gathering_time_s": (0.005, 0.02),
    "storage.shared_objects.group_bytes_max": (8_000,),
    "storage.shared_objects.group_changes_max": (8,),
    "storage.shared_objects.waiting_removals_max": (1,),
}
"""The same, of objects that share others. Runs double in length: with six of them a map of a hundred flushes would be
rewritten by every third one, and Tier 2 never come up with what is written."""
JOURNAL: Final[Mapping[str, tuple[float, ...]]] = {
    "storage.change_journal.generation_ids_max": (1, 3, 10),
    "storage.change_journal.generation_objects_max": (1, 2),
    "storage.change_journal.generation_time_max_s": (0.5, 5.0),
}
"""The same, of journals of changes."""
PLOG_LIMIT: Final = "plog.plog_client.frame_bytes_max"
"""The least size of a plog: it follows the size of a frame."""
WRITE_LIMIT: Final = "writer.segment_aggregator.write_bytes_max"
"""The most that one write of a segment to Tier 2 has."""
PIECES: Final[Mapping[str, int]] = {
    "durable_log.data_frame_builder._entries_end_max": 40_000,
    "read_index.fetch_budget.fetch_bytes_max": 30_000,
    WRITE_LIMIT: 30_000,
}
"""Limits that cut what is written and read into pieces, each of which is calls of Tier 1 or of Tier 2; with the value
that a family has that needs many bytes."""
piece_bytes_max: Final = 30_000
"""What counts as one piece where no limit is smaller."""
frame_rest_bytes: Final = 100
"""More than a frame has beside its entries."""


def draw_limits(rng: random.Random, *, large_pieces: bool = False) -> dict[str, float]:
    """The limits of a seed: a quarter of them leaves all as they are. ``large_pieces``: those that cut bytes into
    pieces are large ones."""
    if rng.random() < 0.25:
        return {}
    drawn = {name: rng.choice(values) for name, values in SMALL.items() if rng.random() < 0.5}
    if large_pieces:
        drawn |= {name: large for name, large in PIECES.items() if name in drawn}
    entries = drawn.get("durable_log.data_frame_builder._entries_end_max")
    if entries is not None:
        drawn[PLOG_LIMIT] = entries + frame_rest_bytes
    return drawn


def piece_bytes(limits: Mapping[str, float]) -> int:
    """The length of the pieces that the smallest limit makes of what is written and read."""
    return int(min([piece_bytes_max, *(limits[name] for name in PIECES if name in limits)]))


def draw_shared_limits(rng: random.Random) -> dict[str, float]:
    """Those of shared objects, half of them."""
    return {name: rng.choice(values) for name, values in SHARED.items() if rng.random() < 0.5}


def draw_journal_limits(rng: random.Random) -> dict[str, float]:
    """Those of journals of changes, half of them."""
    return {name: rng.choice(values) for name, values in JOURNAL.items() if rng.random() < 0.5}


@contextlib.contextmanager
def in_force(limits: Mapping[str, float]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, value in limits.items():
            if exists(name):
                stack.enter_context(mock.patch(f"segment_service.{name}", value))
        yield


def exists(name: str) -> bool:
    """Whether the product has such a limit; ``tests/property/test_simulator.py`` fails for one that was moved."""
    module, _, attribute = name.rpartition(".")
    with contextlib.suppress(ModuleNotFoundError):
        return hasattr(importlib.import_module(f"segment_service.{module}"), attribute)
    return False
