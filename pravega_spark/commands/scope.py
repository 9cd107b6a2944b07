"""``scope list|info|quota|delete``: show scopes with what they hold, limit them, and remove empty ones."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final

import typer

from pravega_common.errors import InvalidArgument, NotFound, ScopeNotEmpty, UnsupportedOperation
from pravega_common.model.scope_quota import (
    DescribedQuota,
    ScopeQuota,
    quota_count_max,
    quota_rate_max,
    quota_rate_min,
)
from pravega_common.names import validate_user_scope_name
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, ControllerOption, JsonOption, YesOption
from pravega_spark.commands.connection import connected
from pravega_spark.commands.output import confirm, counted, print_deleted, print_facts, print_json, print_table
from pravega_spark.commands.scope_contents import absent_scope, contents_of
from pravega_streams.client import StreamClient

ScopeArgument = Annotated[str, typer.Argument(metavar="SCOPE", help="The scope.", show_default=False)]
LimitOption = Annotated[int | None, typer.Option(min=0, max=quota_count_max, show_default=False)]
RateOption = Annotated[
    int | None,
    typer.Option(min=quota_rate_min, max=quota_rate_max, show_default=False, help="Bytes a second, in all stores."),
]
_COUNTS: Final = ("streams", "segments")
_RATES: Final = {"bytes_in": "bytes/s in", "bytes_out": "bytes/s out"}


def add_to(application: typer.Typer) -> None:
    group = typer.Typer(help="Scopes, and the limits of what they hold.", no_args_is_help=True)
    group.command("list")(list_scopes)
    group.command()(info)
    group.command()(quota)
    group.command()(delete)
    application.add_typer(group, name="scope")


def list_scopes(controller: ControllerOption = CONTROLLER_DEFAULT, as_json: JsonOption = False) -> None:
    """List the scopes with their quotas and what is used of them."""
    with connected(controller) as client:
        found = [(scope, _described(client, scope)) for scope in sorted(client.controller.list_scopes())]
    if as_json:
        print_json([_scope_json(scope, described) for scope, described in found])
        return
    rows = [(scope, *(text for _, text in _facts(described))) for scope, described in found]
    print_table(counted(len(rows), "scope"), ["scope", *_COUNTS, *_RATES.values()], rows)


def info(scope: ScopeArgument, controller: ControllerOption = CONTROLLER_DEFAULT, as_json: JsonOption = False) -> None:
    """Show the quota of a scope and what is used of it."""
    with connected(controller) as client:
        _print(scope, _of_existing(client, scope), as_json)


def quota(
    scope: ScopeArgument,
    streams: LimitOption = None,
    segments: LimitOption = None,
    bytes_in: RateOption = None,
    bytes_out: RateOption = None,
    unlimited: Annotated[bool, typer.Option("--none", help="Take all limits away that are not named.")] = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Limit the streams and segments of a scope, and its bytes a second. Limits that are not named stay. An operator's
    decision."""
    given = {"streams": streams, "segments": segments, "bytes_in": bytes_in, "bytes_out": bytes_out}
    named = {name: limit for name, limit in given.items() if limit is not None}
    if not named and not unlimited:
        raise InvalidArgument(
            "scope quota needs --streams, --segments, --bytes-in, --bytes-out or --none; scope info shows the quota"
        )
    with connected(controller) as client:
        described = _of_existing(client, scope)
        before = ScopeQuota() if unlimited or described is None else described.quota
        client.quotas.set(scope, dataclasses.replace(before, **named))
        _print(scope, client.quotas.describe(scope), as_json)


def delete(
    scope: ScopeArgument,
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Delete an empty scope."""
    validate_user_scope_name(scope)
    with connected(controller) as client:
        contents_of(client, scope).check_empty()
        if not yes:
            confirm(f"Delete scope {scope}?", unasked=f"deleting scope '{scope}'")
        deleted = _deleted(client, scope)
    print_deleted("scope", scope, deleted, as_json)


def _deleted(client: StreamClient, scope: str) -> bool:
    try:
        return client.controller.delete_scope(scope)
    except ScopeNotEmpty as error:
        contents_of(client, scope).check_empty()  # Something may have been made since the last look.
        raise ScopeNotEmpty(
            f"scope '{scope}' is not empty, and you may see nothing that is left in it: ask who may, or try again if "
            "something is being deleted there"
        ) from error


def _of_existing(client: StreamClient, scope: str) -> DescribedQuota | None:
    if not client.controller.scope_exists(scope):
        raise absent_scope(scope)
    return _described(client, scope)


def _described(client: StreamClient, scope: str) -> DescribedQuota | None:
    """Returns None on a plain Pravega, which has no quotas, and for a scope that is gone."""
    try:
        return client.quotas.describe(scope)
    except (NotFound, UnsupportedOperation):
        return None


def _facts(described: DescribedQuota | None) -> list[tuple[str, str]]:
    """Returns what is used of each limit, as a text for people."""
    if described is None:
        return [(name, "") for name in (*_COUNTS, *_RATES.values())]
    quota, use = described.quota, described.use if described.is_counted else None
    counts = [(name, _text(getattr(quota, name), None if use is None else getattr(use, name))) for name in _COUNTS]
    rates = [(getattr(quota, name), title) for name, title in _RATES.items()]
    return counts + [(title, "no limit" if limit is None else f"{limit:,}") for limit, title in rates]


def _text(limit: int | None, used: int | None) -> str:
    if used is None:
        return "not counted" if limit is None else f"being counted, limit {limit:,}"
    return f"{used:,}" if limit is None else f"{used:,} of {limit:,}"


def _print(scope: str, described: DescribedQuota | None, as_json: bool) -> None:
    if as_json:
        print_json(_scope_json(scope, described))
    else:
        print_facts(f"scope {scope}", _facts(described))


def _scope_json(scope: str, described: DescribedQuota | None) -> dict[str, Any]:
    if described is None:
        return {"scope": scope}
    used = dataclasses.asdict(described.use) if described.is_counted else None
    return {"scope": scope, "limits": dataclasses.asdict(described.quota), "used": used}
