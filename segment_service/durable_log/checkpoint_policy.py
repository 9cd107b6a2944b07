"""Decides when a container writes a checkpoint: Tier 1 stays short and checkpoints stay cheap."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """A checkpoint is due after ``operations_max`` operations or ``bytes_max`` of log, whichever comes first.

    ``snapshot_ratio``: and not before the log grew by that many times the size of the last snapshot, so that
    checkpoints of a container with very many segments cost a bounded share of the log.
    """

    operations_max: int = 50_000
    bytes_max: int = 32 * 1024 * 1024
    snapshot_ratio: int = 4

    def is_due(self, operations: int, log_bytes: int, snapshot_bytes: int) -> bool:
        if log_bytes < self.snapshot_ratio * snapshot_bytes:
            return False
        return operations >= self.operations_max or log_bytes >= self.bytes_max
