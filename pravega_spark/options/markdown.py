"""Writes the table of options for the documents."""

from __future__ import annotations

from typing import Any, Final

from pravega_spark.options.definitions import OPTIONS, Use

_WORDS_FOR_USE: Final = {
    Use.BATCH_READ: "batch read",
    Use.STREAM_READ: "streaming read",
    Use.BATCH_WRITE: "batch write",
    Use.STREAM_WRITE: "streaming write",
}


def markdown_table() -> str:
    """The table of options for docs/spark-source-and-sink.md A.1."""
    lines = ["| option | for | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        uses = "all" if option.use is Use.ALL else ", ".join(_WORDS_FOR_USE[item] for item in option.use)
        default = option.default_text or _default_word(option.default)
        lines.append(f"| `{option.name}` | {uses} | {default} | {option.help} |")
    return "\n".join(lines)


def _default_word(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
