"""Imports the public names of a package when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, MutableMapping
from typing import Any


def public_name(namespace: MutableMapping[str, Any], modules: Mapping[str, str], name: str) -> Any:
    """Returns a name of a package, and keeps it in the package's ``namespace``; for its ``__getattr__``.

    ``modules``: the module of each public name. ``AttributeError`` for another name, with those that there are.
    """
    module = modules.get(name)
    if module is None:
        package = namespace["__name__"]
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(modules)}")
    value = getattr(importlib.import_module(module), name)
    namespace[name] = value
    return value
