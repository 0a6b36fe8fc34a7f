"""The API's description of itself: typed answers, the errors that there are, and permissions; and the same to read.

The docs page is plain HTML without a script. The usual ones load megabytes of script and need inline styles, which the
page's policy forbids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from pydantic import TypeAdapter

from hangwatch_dashboard import answers as kinds
from hangwatch_dashboard.schema import record_schemas

REFERENCE = "#/components/schemas/{model}"
ERRORS = {
    "400": "not JSON, or not the body that it should be",
    "401": "a token is needed, or it is not known",
    "403": "this token may not do that, or another page made a browser send the request",
    "404": "there is no such thing",
    "408": "the body did not arrive in time",
    "409": "this batch is in the store already",
    "413": "the body is too large",
    "415": "Content-Type must be application/json; Content-Encoding gzip or none",
    "422": "a parameter or a record is not what it should be",
    "428": "no batch of this node has come yet",
    "429": "too many requests; Retry-After says when to try again",
    "503": "the store cannot keep up; Retry-After says when to try again",
}
ALWAYS = ("401", "403", "429", "503")
OF_BODIES = ("400", "408", "413", "415", "422")
SECURITY = {
    "ingest": {"type": "http", "scheme": "bearer", "description": "HANGWATCH_INGEST_TOKEN: may send, and nothing else"},
    "read": {"type": "http", "scheme": "bearer", "description": "HANGWATCH_READ_TOKEN: may read, and ask for captures"},
    "admin": {"type": "http", "scheme": "bearer", "description": "HANGWATCH_ADMIN_TOKEN: may delete as well"},
    "session": {"type": "apiKey", "in": "cookie", "name": "hangwatch", "description": "given by POST /api/v1/session"},
}
OPEN = ("/healthz", "/readyz", "/api/v1/session")


def answers(kind: type, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What FastAPI's `responses` says of an answer that is plain data of the shape of `kind`."""
    schema = {"$ref": REFERENCE.format(model=kind.__name__)}
    return {status: {"description": _first_line(kind), "content": {"application/json": {"schema": schema}}}}


def file(media_type: str) -> dict[int | str, dict[str, Any]]:
    """What `responses` says of a download."""
    return {200: {"description": "A file", "content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}}


def body(schema: dict[str, Any]) -> dict[str, Any]:
    """What `openapi_extra` says of a body that is read by hand."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _first_line(kind: type) -> str:
    text = (kind.__doc__ or "").strip().splitlines()
    return text[0] if text and not text[0].startswith(f"{kind.__name__}(") else kind.__name__


def answer_schemas() -> dict[str, Any]:
    """The schemas of `hangwatch_dashboard.answers`, and of the records in them, by name."""
    found = [kind for kind in vars(kinds).values() if isinstance(kind, type) and kind.__module__ == kinds.__name__]
    inputs: list[Any] = [(kind, "serialization", TypeAdapter(kind)) for kind in found]
    _, document = TypeAdapter.json_schemas(inputs, ref_template=REFERENCE)
    schemas: dict[str, Any] = document["$defs"]
    return schemas


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """FastAPI's description with the schemas of all records, the real errors, and the security schemes."""
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(answer_schemas())
    schemas.update(record_schemas(REFERENCE))
    parts["securitySchemes"] = SECURITY
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _complete(path, method, operation)
    return document


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    # What is open to all asks nobody who they are; a change is refused to other pages even there.
    open_to_all = path in OPEN and method == "get"
    possible = [status for status in ALWAYS if not (open_to_all and status in ("401", "403"))]
    possible += OF_BODIES if "requestBody" in operation else ()
    if method in ("post", "put"):
        possible.append("415")  # without a body as well: a form of another page has none to speak of
    if "{" in path:
        possible.append("404")
    if operation.get("parameters"):
        possible.append("422")
    if path.startswith("/api/v1/ingest/"):
        possible += ["409"] if path.endswith("batch") else ["428"]
    for content in (each for answer in responses.values() for each in answer.get("content", {}).values()):
        content["schema"] = _ours(content.get("schema", {}))
    for status in sorted(set(possible)):
        responses[status] = _error(ERRORS[status])
    operation["security"] = _who_may(path, method)


def _ours(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without what FastAPI adds to it from a route's return type: a title, and that it is any object."""
    named = {"$ref": schema["$ref"]} if "$ref" in schema else schema
    return {name: value for name, value in named.items() if name != "title"}


def _error(description: str) -> dict[str, Any]:
    schema = {"$ref": REFERENCE.format(model="ApiFailure")}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _who_may(path: str, method: str) -> list[dict[str, list[str]]]:
    """The empty requirement is for dashboards on loopback without tokens."""
    if path in OPEN:
        return []
    if path.startswith("/api/v1/ingest/"):
        return [{"ingest": []}, {}]
    roles = ("admin", "session") if method == "delete" else ("read", "admin", "session")
    nobody: dict[str, list[str]] = {}
    return [*({**nobody, role: []} for role in roles), nobody]


DOCS_STYLE = """\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { background: light-dark(#faf9f6, #121417); color: light-dark(#1b1c1e, #e9e9e5) }
body { margin: 24px auto; padding: 0 16px; max-width: 62rem }
a { color: light-dark(#1a5596, #86bdf7) }
h1, h2, h3, p, li, code, pre { overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin: 2rem 0 0.25rem; padding-top: 0.75rem; border-top: 1px solid #8886 }
h3 { font-size: 1rem }
nav ul { padding-left: 1.2rem }
nav > ul { columns: 24rem; list-style: none; padding: 0 }
nav > ul > li { break-inside: avoid; margin-bottom: 0.75rem }
pre { white-space: pre-wrap }
"""


def docs_page(document: dict[str, Any]) -> str:
    """The description as HTML without a script: every operation with its parameters and answers, then the schemas."""
    parts = [
        _contents(document),
        *_operations(document),
        *_schemas(document["components"]["schemas"]),
    ]
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>hangwatch API</title>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    view += '<link rel="stylesheet" href="/api/v1/docs.css">'
    intro = '<p><a href="/">Back to the dashboard</a></p>'
    intro += '<p>The same for programs: <a href="/api/v1/openapi.json">openapi.json</a>.</p>'
    title = f"<h1>hangwatch API {escape(document['info']['version'])}</h1>"
    return f"{head}{view}<main>{title}{intro}{''.join(parts)}</main></html>"


def _contents(document: dict[str, Any]) -> str:
    """The operations by subject, each a link to its place on the page."""
    subjects: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            link = f'<a href="#{_place(method, path)}"><code>{method.upper()} {escape(path)}</code></a>'
            subjects.setdefault(operation["tags"][0], []).append(f"<li>{link}</li>")
    lists = "".join(f"<li>{escape(subject)}<ul>{''.join(links)}</ul></li>" for subject, links in subjects.items())
    return f'<nav aria-label="Contents"><ul>{lists}<li><a href="#schemas">Schemas</a></li></ul></nav>'


def _place(method: str, path: str) -> str:
    return escape(f"{method}{re.sub(r'[^a-z0-9]+', '-', path)}".strip("-"))


def _operations(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f'<h2 id="{_place(method, path)}">'
            yield f"<code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{_prose(operation.get('description', ''))}</p>"
            if operation.get("parameters"):
                yield "<ul>" + "".join(_parameter(each) for each in operation["parameters"]) + "</ul>"
            if "requestBody" in operation:
                yield f"<p>Body: {_kinds(operation['requestBody'])}</p>"
            yield "<ul>" + "".join(_answer(*each) for each in sorted(operation["responses"].items())) + "</ul>"


def _prose(text: str) -> str:
    """A docstring, in which `backticks` mark code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _parameter(parameter: dict[str, Any]) -> str:
    limits = {name: value for name, value in parameter["schema"].items() if name != "title"}
    return f"<li><code>{escape(parameter['name'])}</code> ({parameter['in']}): <code>{_json(limits)}</code></li>"


def _answer(status: str, answer: dict[str, Any]) -> str:
    return f"<li>{status}: {_kinds(answer)} {_prose(answer.get('description', ''))}</li>"


def _kinds(part: dict[str, Any]) -> str:
    return ", ".join(_schema_of(content.get("schema", {})) for content in part.get("content", {}).values())


def _schema_of(schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    return f'<a href="#{name}"><code>{name}</code></a>' if name else f"<code>{_json(schema)}</code>"


def _schemas(schemas: dict[str, Any]) -> Iterator[str]:
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in sorted(schemas.items()):
        text = escape(json.dumps(schema, indent=1))
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3>'
        yield f"<details><summary>schema</summary><pre>{text}</pre></details>"


def _json(value: Any) -> str:
    return escape(json.dumps(value))
