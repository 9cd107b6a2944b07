"""Serves the files of the window's page; they load nothing from elsewhere."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from aiohttp import web

OWN_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A page loads from, and speaks to, this controller only. It is in no other page: its calls come from itself, and so
would pass for those of an operator who was made to click."""
PAGE_POLICY: Final = f"{OWN_POLICY}; img-src 'self'"
_KINDS: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_NAMES: Final = sorted(one.name for one in files("controller_service.window").joinpath("page").iterdir())
PAGE_FILES: Final = {"/": "index.html"} | {f"/window/{name}": name for name in _NAMES if name != "index.html"}
"""The files by their paths."""


def page_routes() -> list[web.RouteDef]:
    folder = files("controller_service.window").joinpath("page")
    contents = {path: folder.joinpath(name).read_bytes() for path, name in PAGE_FILES.items()}

    async def serve(request: web.Request) -> web.Response:
        kind = _KINDS[PAGE_FILES[request.path].rpartition(".")[2]]
        headers = {
            "Content-Security-Policy": PAGE_POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        }
        return web.Response(body=contents[request.path], content_type=kind, charset="utf-8", headers=headers)

    return [web.get(path, serve) for path in contents]
