"""``user add|list|remove``: change the file with the users of a cluster, which its controllers follow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pravega_common.errors import InvalidArgument, NotFound
from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.password_file import (
    HashedPassword,
    User,
    changing_users,
    checked_user_name,
    password_bytes_max,
    read_users,
)
from pravega_spark.commands.arguments import JsonOption, YesOption
from pravega_spark.commands.output import confirm, counted, print_json, print_table, say

FileOption = Annotated[
    Path, typer.Option("--file", metavar="FILE", help="The users' file: security.password_file of the controllers.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user.", show_default=False)]


def add_to(application: typer.Typer) -> None:
    group = typer.Typer(help="Users of a cluster, and what they may do (docs/security.md).", no_args_is_help=True)
    group.command()(add)
    group.command("list")(list_users)
    group.command()(remove)
    application.add_typer(group, name="user")


def add(
    name: NameArgument,
    file: FileOption,
    access: Annotated[
        str | None, typer.Option(metavar="ENTRIES", help='Access entries: "prn::/scope:a/stream:b,READ_UPDATE;…".')
    ] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="A file with the password, or - for standard input; asked for by default.")
    ] = None,
) -> None:
    """Add a user, or give one another password. Without --access a user who is there keeps the entries, and a new one
    may do nothing."""
    entries = AccessEntries.parse(access or "")
    password = HashedPassword.of(_password(checked_user_name(name), password_file))
    with changing_users(file) as users:
        known = users.get(name)
        if known is not None and access is None:
            entries = known.entries
        users[name] = User(name, password, entries)
    say(f"user {name} {'has another password' if known else 'was added'}, with {counted(len(entries), 'access entry')}")


def list_users(file: FileOption, as_json: JsonOption = False) -> None:
    """List the users and what they may do; no hash is shown."""
    users = sorted(read_users(file).values(), key=lambda user: user.name)
    if as_json:
        print_json([{"name": user.name, "access": str(user.entries)} for user in users])
        return
    print_table(
        counted(len(users), "user"), ["name", "access entries"], [(user.name, str(user.entries)) for user in users]
    )


def remove(name: NameArgument, file: FileOption, yes: YesOption = False) -> None:
    """Take a user out. Controllers refuse the user within a second, stores when the last token ends."""
    if name not in read_users(file):
        raise NotFound(f"there is no user {name} in {file}")
    if not yes:
        confirm(f"Take user {name} out of {file}?", unasked="user remove")
    with changing_users(file) as users:
        if users.pop(name, None) is None:
            raise NotFound(f"user {name} was removed from {file} meanwhile")
    say(f"user {name} was removed")


def _password(name: str, file: Path | None) -> bytes:
    """The password, without the end of the line. It is never an argument: those are seen by all users of a machine."""
    if file is None:
        if not sys.stdin.isatty():
            raise InvalidArgument("nobody can be asked for the password here: use --password-file FILE, or - for input")
        asked: str = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return asked.encode()
    try:
        opened = sys.stdin.buffer if str(file) == "-" else file.open("rb")
        with opened:
            return opened.read(password_bytes_max + 3).rstrip(b"\r\n")
    except OSError as error:
        raise InvalidArgument(f"password file {file} cannot be read: {error.strerror}") from error
