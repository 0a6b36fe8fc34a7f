"""Documents as files."""

from __future__ import annotations

from starlette.responses import Response

from hangwatch.report import html as html_report
from hangwatch.report import speedscope as speedscope_report
from hangwatch_dashboard import documents

SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'"  # should a browser open it all the same
KINDS = {".html": "text/html; charset=utf-8", ".json": "application/json"}


def download(name: str, body: str | bytes) -> Response:
    """A file to be saved. `name` is ours and needs no quoting."""
    headers = {"content-disposition": f'attachment; filename="{name}"', "content-security-policy": SANDBOX}
    return Response(body, media_type=KINDS[name[name.rindex(".") :]], headers=headers)


def html(document: bytes) -> str:
    """The self-contained page of a stored document."""
    return html_report.page(documents.incident(document))


def speedscope(document: bytes) -> str:
    """The stacks of a stored document, for speedscope."""
    return speedscope_report.render(documents.incident(document))
