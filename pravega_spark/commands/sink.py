"""``sink list|show|forget``: show the controller's records of exactly-once writers, and let one start over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer

from pravega_common.errors import AccessDenied, InvalidArgument, NotFound
from pravega_common.model.transaction_sets import SinkStatus, TransactionSet
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, ControllerOption, JsonOption, YesOption
from pravega_spark.commands.connection import connected
from pravega_spark.commands.output import confirm, counted, print_facts, print_json, print_table
from pravega_spark.commands.quantities import text_of_time
from pravega_spark.ledger.batch import JOB_PREFIX
from pravega_spark.ledger.coordinator import TransactionCoordinator
from pravega_spark.ledger.job_claims import JobClaims, claims_segment
from pravega_streams.client import StreamClient
from pravega_streams.table.blocking_table import BlockingTable

ids_shown_max: Final = 5
"""Sinks that an error names."""


def add_to(application: typer.Typer) -> None:
    group = typer.Typer(help="Records of exactly-once writers: streaming queries and batch jobs.", no_args_is_help=True)
    group.command("list")(list_sinks)
    group.command()(show)
    group.command()(forget)
    application.add_typer(group, name="sink")


def list_sinks(controller: ControllerOption = CONTROLLER_DEFAULT, as_json: JsonOption = False) -> None:
    """List all sinks with their last committed batch."""
    with connected(controller) as client:
        records = sorted(TransactionCoordinator(client).list_sinks(), key=lambda item: item.touched_ms, reverse=True)
        jobs = _backfill_jobs(client, records)
    if as_json:
        print_json([_record_json(item, jobs) for item in records])
        return
    rows = [
        (
            _shown_name(item, jobs),
            item.sink.label,
            item.sink.destination,
            item.last_committed_batch_id,
            item.last_set.state.name.lower(),
            item.last_set.events,
            text_of_time(item.touched_ms),
        )
        for item in records
    ]
    columns = ["query or job", "name", "into", "last batch", "state", "events of it", "last touched"]
    print_table(counted(len(rows), "sink"), columns, rows)


def show(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Its query, job or name as in sink list, or how the query begins.")
    ],
    into: Annotated[str, typer.Option(metavar="SCOPE/STREAM", help="The target, if it writes into several.")] = "",
    batch: Annotated[int, typer.Option(min=-1, help="The batch; the last one by default.")] = -1,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show the decision about a batch of a sink, and its transactions."""
    with connected(controller) as client:
        record, jobs = _find(client, query, into, by_name=True)
        wanted = record.last_committed_batch_id if batch < 0 else batch
        decided = (
            record.last_set
            if wanted == record.last_set.batch_id
            else TransactionCoordinator(client).get(record.sink, wanted)[0]
        )
    if as_json:
        print_json({**_record_json(record, jobs), "batch": _set_json(decided, wanted)})
    else:
        _print(record, decided, wanted, jobs)


def forget(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Its query or job as in sink list, or the beginning of it.")
    ],
    into: Annotated[str, typer.Option(metavar="SCOPE/STREAM", help="The target, if it writes into several.")] = "",
    secret_only: Annotated[
        bool, typer.Option("--secret-only", help="Only let its next run show another secret; batches stay known.")
    ] = False,
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Let a sink start over: no batch of it is known as committed any more. An operator's decision."""
    with connected(controller) as client:
        sink = _find(client, query, into)[0].sink
        if not secret_only and not yes:
            question = f"A batch of {sink.query_id} that runs again is written again. Forget what was committed?"
            confirm(question, unasked=f"forgetting sink {sink.query_id}")
        client.sets.forget(sink, secret_only=secret_only)
    if as_json:
        forgotten = "secret" if secret_only else "sink"
        print_json({"query_id": sink.query_id, "destination": sink.destination, "forgotten": forgotten})
    else:
        print(f"{'secret of ' if secret_only else ''}sink {sink.query_id} into {sink.destination} forgotten")


def _backfill_jobs(client: StreamClient, records: Iterable[SinkStatus]) -> dict[str, str]:
    """The job id of each sink that is a backfill's, by its query id; without those that the user may not read."""
    jobs: dict[str, str] = {}
    for scope in sorted({item.sink.destination.partition("/")[0] for item in records}):
        try:
            jobs |= JobClaims(BlockingTable(client.segments, claims_segment(scope)), lambda: 0).names()
        except AccessDenied:
            continue
    return jobs


def _job_of(record: SinkStatus, jobs: Mapping[str, str]) -> str | None:
    """The job id; a backfill of another format than files is a batch write under the name of its claim."""
    return jobs.get(record.sink.query_id.removeprefix(JOB_PREFIX))


def _shown_name(record: SinkStatus, jobs: Mapping[str, str]) -> str:
    job = _job_of(record, jobs)
    return record.sink.query_id if job is None else f"backfill {job}"


def _find(client: StreamClient, query: str, into: str, *, by_name: bool = False) -> tuple[SinkStatus, dict[str, str]]:
    """``by_name``: also by the name of a query, which anybody may give to another one, so not where that matters."""
    records = list(TransactionCoordinator(client).list_sinks())
    jobs = _backfill_jobs(client, records)
    found = [
        item
        for item in records
        if (item.sink.query_id.startswith(query) or query in (_job_of(item, jobs), by_name and item.sink.label))
        and (not into or item.sink.destination == into)
    ]
    exact = [item for item in found if query in (item.sink.query_id, _job_of(item, jobs))]
    found = exact or found
    if not found:
        raise unknown_sink(query, into, records)
    if len(found) > 1:
        names = ", ".join(f"{item.sink.query_id} into {item.sink.destination}" for item in found[:ids_shown_max])
        raise InvalidArgument(f"'{query}' stands for {len(found)} sinks ({names}); write more of it, or use --into")
    return found[0], jobs


def unknown_sink(query: str, into: str, records: Iterable[SinkStatus]) -> NotFound:
    """The error for what identifies no sink; the name of a query gets the ids of those that have it."""
    named = [
        item.sink.query_id
        for item in records
        if query and item.sink.label == query and (not into or item.sink.destination == into)
    ]
    if not named:
        return NotFound(f"no sink '{query}'{f' into {into}' if into else ''} is on record; see pravega-spark sink list")
    shown = named[:ids_shown_max]
    if more := len(named) - len(shown):
        shown.append(f"{more} more")
    ids = " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    return NotFound(
        f"'{query}' is the name of a query, which another may have too: give the id of the sink, as in pravega-spark "
        f"sink list: {ids}"
    )


def _print(record: SinkStatus, decided: TransactionSet, batch_id: int, jobs: Mapping[str, str]) -> None:
    job = _job_of(record, jobs)
    print_facts(
        f"sink {record.sink.query_id}",
        [
            *([("backfill job", job)] if job is not None else []),
            *([("name of the query", record.sink.label)] if record.sink.label else []),
            ("into", record.sink.destination),
            ("last committed batch", record.last_committed_batch_id),
            ("run", record.run_id),
            ("last touched", text_of_time(record.touched_ms)),
            ("batch shown", batch_id),
            ("its state", decided.state.name.lower()),
            ("its events", decided.events),
            ("its bytes", decided.bytes),
        ],
    )
    rows = [
        (item.partition, f"{item.scope}/{item.stream}", str(item.transaction_id), item.events, item.bytes)
        for item in decided.members
    ]
    print_table("transactions", ["partition", "stream", "transaction", "events", "bytes"], rows)


def _record_json(record: SinkStatus, jobs: Mapping[str, str]) -> dict[str, Any]:
    return {
        "query_id": record.sink.query_id,
        "name": record.sink.label or None,
        "job_id": _job_of(record, jobs),
        "destination": record.sink.destination,
        "last_committed_batch_id": record.last_committed_batch_id,
        "run_id": record.run_id,
        "touched_ms": record.touched_ms,
        "last_set": _set_json(record.last_set, record.last_set.batch_id),
    }


def _set_json(decided: TransactionSet, batch_id: int) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "state": decided.state.name.lower(),
        "run_id": decided.run_id,
        "events": decided.events,
        "bytes": decided.bytes,
        "members": [
            {
                "partition": item.partition,
                "stream": f"{item.scope}/{item.stream}",
                "transaction": str(item.transaction_id),
                "events": item.events,
                "bytes": item.bytes,
            }
            for item in decided.members
        ],
    }
