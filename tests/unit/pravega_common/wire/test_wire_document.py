"""Holds the tables of ``docs/wire-protocol.md`` against the layouts of the commands."""

from __future__ import annotations

import re
from typing import Final

from pravega_common.wire.commands import COMMANDS, Command
from tests.support.repository import ROOT

ROW: Final = re.compile(r"^\| (?P<code>[−\d]+) \| (?P<name>\w+) \| (?:client|store|both) \| (?P<fields>[^|]*) \|", re.M)
WORDS: Final = {
    "I8": "i8",
    "I32": "i32",
    "I64": "i64",
    "Bool": "bool",
    "Str": "str",
    "Uuid": "uuid",
    "Raw": "raw",
    "Bulk": "bytes",
    "SmallBytes": "bytes",
    "EventData": "event",
    "Keys": "key list",
    "Entries": "entries",
    "Versions": "i64 list",
    "Strings": "str list",
    "MergedSources": "(str, i64) list",
    "Frames": "frame list",
    "Chunks": "chunk list",
    "TrailingI32": "i32?",
    "TrailingI64": "i64?",
    "TrailingFlags": "flags?",
    "TrailingBool": "bool?",
    "TrailingStr": "str?",
    "TrailingBytes": "bytes?",
    "TrailingUpdates": "attribute update list?",
}
"""Names of the types of fields in the document."""


def layout_of(command: type[Command]) -> str:
    return ", ".join(f"{name} {WORDS[kind]}" for name, kind in command.__annotations__.items()) or "(nothing)"


def test_the_tables_have_every_command_with_its_layout() -> None:
    text = (ROOT / "docs" / "wire-protocol.md").read_text()
    documented = {int(row["code"].replace("−", "-")): (row["name"], row["fields"]) for row in ROW.finditer(text)}
    assert documented == {code: (command.__name__, layout_of(command)) for code, command in COMMANDS.items()}
