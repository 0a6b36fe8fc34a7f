"""The page: files that were built into the package, looked up in a list and never by a path from outside."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.responses import HTMLResponse, Response

from hangwatch_dashboard.bodies import BodyError

NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>hangwatch</title>
<h1>hangwatch is running</h1>
<p>Its page has not been built in this checkout: run <code>make page</code>, or install a released package.</p>
<p>The API works all the same: <a href="/api/v1/jobs">jobs</a>, <a href="/api/v1/incidents">incidents</a>,
<a href="/metrics">metrics</a>.</p></html>
"""
FOREVER = "public, max-age=31536000, immutable"  # assets have their contents' hash in their name


class Page:
    """Serves the files below `folder`; every address that is no file is index.html, for the page routes by itself."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._files: dict[str, Path] = {}

    def get(self, path: str) -> Response:
        """The answer to an address. Raises BodyError(404) for an asset that is not there."""
        self._refresh()
        path = path.lstrip("/")
        if found := self._files.get(path):
            kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
            cache = FOREVER if path.startswith("assets/") else "no-cache"
            return Response(found.read_bytes(), media_type=kind, headers={"cache-control": cache})
        if path.startswith("assets/"):
            raise BodyError(404, "there is no such file")
        if index := self._files.get("index.html"):
            return HTMLResponse(index.read_bytes(), headers={"cache-control": "no-cache"})
        return HTMLResponse(NOT_BUILT, headers={"cache-control": "no-store"})

    def _refresh(self) -> None:
        try:
            made = (self._folder / "index.html").stat().st_mtime_ns
        except OSError:
            made, self._files = 0, {}
        if made != self._made:
            self._made = made
            files = (file for file in self._folder.rglob("*") if file.is_file() and not file.is_symlink())
            self._files = {file.relative_to(self._folder).as_posix(): file for file in files}
