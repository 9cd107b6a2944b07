"""Defines backfill jobs: checked before Spark starts, recorded at the first run, compared at every later one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pravega_common.errors import ConfigurationError, InvalidArgument

FILE_FORMATS: Final = ("parquet", "csv", "json", "text", "orc", "avro", "xml", "binaryFile")
"""Formats that Spark can stream from a folder of files."""
_BY_ENDING: Final = {
    "parquet": "parquet",
    "csv": "csv",
    "tsv": "tsv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "txt": "text",
    "log": "text",
    "orc": "orc",
    "avro": "avro",
    "xml": "xml",
}
_TABS: Final = "tsv"
"""The format of an ending that Spark has not: its ``csv``, where tabs and no commas part the columns."""
NOT_RECORDED: Final = "<not-recorded>"
_SECRETS: Final = "secret|password|token|access[.]?key"
"""Names of options with secrets, as Spark tells them (``spark.redaction.regex``)."""
_SECRET: Final = re.compile(_SECRETS, re.IGNORECASE)
_SECRET_OF_URL: Final = re.compile(rf"((?:{_SECRETS})\w*=)[^;&\s]*", re.IGNORECASE)
_USER_OF_URL: Final = re.compile(r"(//[^/@:\s]*:)[^/@\s]+(?=@)")
_SEPARATORS: Final = frozenset({"sep", "delimiter"})
_COMPRESSIONS: Final = ("gz", "bz2", "zst", "snappy", "lz4")
_OWN_EVENT: Final = {"text": "value", "binaryfile": "content"}
"""The column that is the event by default, by the format in lower case, where one column holds everything."""
job_id_chars_max: Final = 100
_JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
chunk_bytes_default: Final = 256 * 1024 * 1024


class JobDiffers(ConfigurationError):
    """A job id was used for another job."""


@dataclass(frozen=True, slots=True)
class LoadJob:
    """A job that loads a source into a stream.

    ``event`` and ``key`` are SQL expressions over the source's columns; an empty ``event`` is JSON of all columns.
    ``schema`` is DDL or Spark's JSON; an empty one is read from the source at the first run and kept. ``stage``: a
    source that is no files is first written to files, which are then loaded in chunks.
    """

    source: str
    source_format: str
    target: str
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    event: str = ""
    key: str = ""
    stage: bool = False

    @property
    def is_of_files(self) -> bool:
        return self.source_format.lower() in {name.lower() for name in FILE_FORMATS}

    @property
    def removes_files(self) -> bool:
        """Tells whether Spark removes or moves files once they are read, by its option ``cleanSource``."""
        given = {name.lower(): value.lower() for name, value in self.options.items()}
        return given.get("cleansource", "off") != "off"

    @property
    def event_expression(self) -> str:
        return self.event or _OWN_EVENT.get(self.source_format.lower(), "to_json(struct(*))")


@dataclass(frozen=True, slots=True)
class ExportJob:
    """A job that exports a range of a stream.

    ``start`` is earliest, a time or a stream cut, ``end`` is latest, a time or a stream cut; an empty ``select`` takes
    all columns. The files lie in folders by the values of ``partition_by``, columns of ``select``.
    """

    stream: str
    target: str
    start: str = "earliest"
    end: str = "latest"
    select: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()


def checked_job_id(text: str) -> str:
    if _JOB_ID.fullmatch(text) is None or len(text) > job_id_chars_max:
        raise InvalidArgument(
            f"--job-id '{text[:40]}' must be 1 to {job_id_chars_max} letters, digits, '.', '_' and '-', and begin with "
            "a letter or a digit: it names a folder"
        )
    return text


def format_of(path: str) -> str:
    """Returns the format that the ending of a path or pattern (``data/*.csv.gz``) names, else ``InvalidArgument``."""
    parts = path.rstrip("/").rsplit("/", 1)[-1].lower().split(".")
    if parts[-1] in _COMPRESSIONS:
        parts.pop()
    found = _BY_ENDING.get(parts[-1]) if len(parts) > 1 else None
    if found is None:
        raise InvalidArgument(f"'{path}' does not say of what format it is; give --format {'|'.join(FILE_FORMATS)}|…")
    return found


def reader_of(source_format: str, options: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Returns Spark's format and options for a format: ``tsv`` is ``csv`` with tabs, unless an option parts otherwise.

    With the commas of ``csv`` a line would be cut at those in its texts.
    """
    if source_format.lower() != _TABS:
        return source_format, options
    given = _SEPARATORS & {name.lower() for name in options}
    return "csv", options if given else {**options, "sep": "\t"}


def parse_options(texts: list[str]) -> dict[str, str]:
    """Parses options for Spark's reader, ``name=value`` each."""
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"--option '{text}' is not of the form name=value")
        if name.lower() in map(str.lower, options):  # Spark takes both for one, and the last wins.
            raise InvalidArgument(f"--option '{text}' sets {name} again; give each option once")
        options[name] = value
    return options


def job_json(job: LoadJob | ExportJob) -> dict[str, Any]:
    """The record of a job, without the secrets in its options: others may read it, and a password may change."""
    made: dict[str, Any] = asdict(job)
    return _without_secrets({name: list(value) if isinstance(value, tuple) else value for name, value in made.items()})


def _without_secrets(record: Mapping[str, Any]) -> dict[str, Any]:
    options: Mapping[str, str] = record.get("options") or {}
    shown = {name: NOT_RECORDED if _SECRET.search(name) else _url_shown(value) for name, value in options.items()}
    return {**record, **({"options": shown} if shown else {})}


def _url_shown(value: str) -> str:
    for secret in (_SECRET_OF_URL, _USER_OF_URL):
        value = secret.sub(rf"\g<1>{NOT_RECORDED}", value)
    return value


def compare_with_record(job_id: str, job: LoadJob | ExportJob, recorded: Mapping[str, Any]) -> None:
    """Raises ``JobDiffers`` for the first property that is not as it was at the first run."""
    recorded = _without_secrets(recorded)  # Older versions recorded them.
    for name, value in job_json(job).items():
        before = recorded.get(name, value if value in ([], False) else None)  # what older versions did not know
        # The schema of a job without one was read from its source and recorded.
        if name == "schema" and not value:
            continue
        if value != before:
            raise JobDiffers(
                f"job '{job_id}' was begun with {name} {_shown(before)}, and is now given {_shown(value)}; "
                "use another --job-id for another job"
            )


def _shown(value: object) -> str:
    text = "none" if value in ("", None, False) or value == [] else str(value)
    return f"'{text}'" if len(text) <= 80 else f"'{text[:77]}…'"
