"""``stream transaction list|abort|accept-loss``: show open commits, and unblock those that lost data."""

from __future__ import annotations

import sys
import uuid
from typing import Annotated, Any

import typer

from pravega_common.errors import InvalidArgument, UnsupportedOperation
from pravega_common.model.commits import Commits, Obstacle, ObstacleKind
from pravega_common.model.transactions import TransactionState
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, ControllerOption, JsonOption, StreamArgument
from pravega_spark.commands.connection import connected, existing_stream
from pravega_spark.commands.output import counted, print_json, print_table, say
from pravega_spark.commands.quantities import text_of_time
from pravega_streams.client import StreamClient

listed_max = 1_000

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def add_to(group: typer.Typer) -> None:
    transactions = typer.Typer(help="Transactions that are not committed yet.", no_args_is_help=True)
    transactions.command("list")(list_transactions)
    transactions.command()(abort)
    transactions.command("accept-loss")(accept_loss)
    group.add_typer(transactions, name="transaction")


def list_transactions(
    stream: StreamArgument, controller: ControllerOption = CONTROLLER_DEFAULT, as_json: JsonOption = False
) -> None:
    """List the transactions that are open, committing or aborting, and what keeps commits from going on."""
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        commits = client.operations.describe(scope, name, listed_max)
    if as_json:
        print_json({"stream": stream, **commits_json(commits), "transactions": _transactions_json(commits)})
        return
    rows = [
        (
            str(item.transaction_id),
            "merging" if item.is_merging else item.state.name.lower(),
            text_of_time(item.created_ms),
        )
        for item in commits.transactions
    ]
    print_table(counted(len(rows), "transaction"), ["transaction", "state", "begun"], rows)
    for obstacle in commits.obstacles:
        say(f"blocked: {obstacle.detail}; {remedy(stream, obstacle)}")


def abort(
    stream: StreamArgument,
    transaction: Annotated[uuid.UUID, typer.Argument(metavar="TRANSACTION", help="Its id, as in list.")],
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Abort an open transaction, or give up one that was to be committed and lost data."""
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        commits = commits_of(client, scope, name)
        is_lost = commits is not None and any(item.transaction == transaction for item in commits.obstacles)
        if is_lost:
            _confirm(yes, f"{transaction} was promised to be committed; what is left of it is deleted. Give it up?")
            client.operations.give_up(scope, name, transaction)
        else:
            _abort_open(client, scope, name, transaction)
    if as_json:
        print_json({"stream": stream, "transaction": str(transaction), "aborted": True, "given_up": is_lost})
    else:
        print(f"{transaction} of {stream} {'given up' if is_lost else 'aborted'}")


def _abort_open(client: StreamClient, scope: str, stream: str, transaction: uuid.UUID) -> None:
    state = client.controller.transaction_state(scope, stream, transaction)
    if state not in (TransactionState.OPEN, TransactionState.ABORTING, TransactionState.ABORTED):
        raise InvalidArgument(
            f"transaction {transaction} of {scope}/{stream} is {state.name.lower()} and not known to be lost: only one "
            "that is open, or keeps others from being committed, can be aborted"
        )
    client.controller.abort_transaction(scope, stream, transaction)


def accept_loss(
    stream: StreamArgument,
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Let a commit that lost bytes while it was merged end with what is there."""
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        obstacles = client.operations.describe(scope, name).obstacles
        details = [item.detail for item in obstacles if item.kind is ObstacleKind.SHORT_MERGE]
        for detail in details:
            say(detail)
        if details:
            _confirm(yes, "Readers will never see these bytes. Let the commit end without them?")
        client.operations.accept_loss(scope, name)
    if as_json:
        print_json({"stream": stream, "accepted": True, "losses": details})
    else:
        print(f"the commit of {stream} goes on without what is lost")


def _confirm(yes: bool, question: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidArgument(f"this needs --yes where nobody can be asked: {question}")
    if not typer.confirm(question, err=True):
        say("nothing was done")
        raise typer.Exit(1)


# ---- for other commands ----------------------------------------------------------------------------------------------


def commits_of(client: StreamClient, scope: str, stream: str) -> Commits | None:
    """Asks for the commits of a stream; None on a plain Pravega, which does not report them."""
    try:
        return client.operations.describe(scope, stream)
    except UnsupportedOperation:
        return None


def remedy(stream: str, obstacle: Obstacle) -> str:
    """Returns the remedy for an operator, as docs/operations.md has it."""
    if obstacle.kind is ObstacleKind.SHORT_MERGE:
        return f"restore the bytes, or: pravega-spark stream transaction accept-loss {stream}"
    if obstacle.transaction is not None:
        return f"restore it, or give it up: pravega-spark stream transaction abort {stream} {obstacle.transaction}"
    return "restore it; a stream that lost a part of itself cannot be repaired by a command"


def commits_text(stream: str, commits: Commits) -> str:
    if commits.obstacles:
        first = commits.obstacles[0]
        return f"BLOCKED, {commits.waiting} wait: {first.detail}; {remedy(stream, first)}"
    return f"{commits.waiting} wait" if commits.waiting else "none waits"


def commits_json(commits: Commits) -> dict[str, Any]:
    return {
        "waiting": commits.waiting,
        "merging": commits.merging,
        "obstacles": [
            {
                "kind": item.kind.name.lower(),
                "detail": item.detail,
                "transaction": None if item.transaction is None else str(item.transaction),
            }
            for item in commits.obstacles
        ],
    }


def _transactions_json(commits: Commits) -> list[dict[str, Any]]:
    return [
        {
            "transaction": str(item.transaction_id),
            "state": item.state.name.lower(),
            "merging": item.is_merging,
            "created_ms": item.created_ms,
        }
        for item in commits.transactions
    ]
