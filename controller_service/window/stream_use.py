"""Tells what writes and reads one stream: transactions, commit rounds, sinks, reader groups."""

from __future__ import annotations

from typing import Final

from controller_service.sets.transaction_set import SinkRecord
from controller_service.transactions.records import ActiveTransaction, CommittingRecord
from controller_service.window.answers import CommitRound, Group, SinkActivity, StreamUse, TransactionCounts
from controller_service.window.parts import WindowParts
from pravega_common.errors import PravegaError
from pravega_common.model.transactions import TransactionState
from pravega_common.names import scoped_name
from pravega_common.runtime.joined import both_ended

transactions_max: Final = 500
"""Active transactions that are counted."""
sink_pages_max: Final = 2
"""Pages of sinks of the whole cluster, 100 each, that are searched for those of a stream."""
groups_max: Final = 100
"""Reader groups of the stream's scope that are searched for those that read it."""


async def use_of(parts: WindowParts, scope: str, stream: str) -> StreamUse:
    """``StreamNotFound``."""
    transactions = await _transactions(parts, scope, stream)
    (sinks, all_sinks), (groups, all_groups) = await both_ended(
        _sinks(parts, scope, stream), _groups(parts, scope, stream)
    )
    unknown = []
    if not all_sinks:
        unknown.append(f"Sinks: only the first {sink_pages_max * 100} of the cluster were looked at.")
    if not all_groups:
        unknown.append(f"Reader groups: only the first {groups_max} of scope {scope} were looked at.")
    return StreamUse(transactions=transactions, sinks=sinks, groups=groups, unknown=unknown)


async def _transactions(parts: WindowParts, scope: str, stream: str) -> TransactionCounts:
    active, is_all = await parts.transactions.some_active(scope, stream, transactions_max)
    commits = await parts.transactions.commit_state(scope, stream)
    opened = _of_state(active, TransactionState.OPEN)
    return TransactionCounts(
        open=len(opened),
        committing=len(_of_state(active, TransactionState.COMMITTING)),
        aborting=len(_of_state(active, TransactionState.ABORTING)),
        oldest_open_ms=min((one.created_ms for one in opened), default=None),
        is_partial=not is_all,
        waiting=commits.queue.count,
        round=None if commits.committing.is_idle else _round(commits.committing),
        blocked=parts.blocked().get(scoped_name(scope, stream)),
    )


def _of_state(active: list[ActiveTransaction], state: TransactionState) -> list[ActiveTransaction]:
    return [one for one in active if one.state is state]


def _round(record: CommittingRecord) -> CommitRound:
    return CommitRound(
        transactions=len(record.transactions),
        epoch=record.epoch,
        is_rolling=record.rolling,
        started_ms=record.started_ms,
    )


async def _sinks(parts: WindowParts, scope: str, stream: str) -> tuple[list[SinkActivity], bool]:
    """Those that wrote to the stream with their last set, and whether all sinks were looked at."""
    found: list[SinkActivity] = []
    token = b""
    for _ in range(sink_pages_max):
        page, token = await parts.sets.list_sinks(token)
        found += [_sink(record) for record in page if _writes_to(record, scoped_name(scope, stream))]
        if not token:
            break
    return found, not token


def _writes_to(record: SinkRecord, name: str) -> bool:
    sets = [one for one in (record.last, record.pending) if one is not None]
    return record.destination == name or any(member.stream == name for one in sets for member in one.members)


def _sink(record: SinkRecord) -> SinkActivity:
    last = record.last
    return SinkActivity(
        query_id=record.query_id,
        name=record.label or None,
        last_batch=None if last is None else last.batch_id,
        last_state=None if last is None else last.state.value,
        last_events=None if last is None else last.events,
        last_bytes=None if last is None else last.bytes,
        last_transactions=None if last is None else len(last.members),
        last_started_ms=None if last is None else last.started_ms,
        pending_batch=None if record.pending is None else record.pending.batch_id,
        open_batches=len(record.open_batches),
        touched_ms=record.touched_ms,
    )


async def _groups(parts: WindowParts, scope: str, stream: str) -> tuple[list[Group], bool]:
    try:
        page, token = await parts.groups.records.page(scope, count_max=groups_max)
    except PravegaError:
        return [], False
    name = scoped_name(scope, stream)
    groups = [
        Group(
            name=group,
            state=record.state.value,
            retention=record.config.retention.name.lower(),
            streams=len(record.config.starting),
        )
        for group, record in page
        if name in record.config.starting
    ]
    return groups, not token
