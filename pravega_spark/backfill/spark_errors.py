"""Finds the sentence that matters in an error that went through Spark."""

from __future__ import annotations

import re
from typing import Final

_OUR_ERROR: Final = re.compile(r"(?:pravega_common|pravega_streams|pravega_spark)[\w.]*\.\w+: (.+)")


def sentence_of(error: BaseException) -> str:
    """Returns the message of our own error if there is one inside, else the first line that says what failed."""
    text = str(error)
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1]).strip()
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    # Py4J names the Java object that was called first, and what failed in it on the next line.
    causes = [line for line in lines if not line.startswith("An error occurred while calling ")]
    return (causes or lines or [type(error).__name__])[0]
