"""Incidents of the same cause and line, and what people note of them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Path, Query, Request
from pydantic import TypeAdapter, ValidationError

from hangwatch_dashboard import views
from hangwatch_dashboard.answers import IncidentGroups, IncidentReview, ReviewState
from hangwatch_dashboard.bodies import BodyError, read_body
from hangwatch_dashboard.openapi import answers, body
from hangwatch_dashboard.routes import Cause, Limit, Moment, Offset, Search, TheService, api_router
from hangwatch_dashboard.routes.incidents import IncidentStatus
from hangwatch_dashboard.store.rows import Review, Wanted
from hangwatch_dashboard.store.text import clean

router = api_router("/incident-groups", tag="incidents")

LONGEST_NOTE = 2000
STATES = "|".join(ReviewState)
REVIEW = {
    "type": "object",
    "required": ["state"],
    "additionalProperties": False,
    "properties": {
        "state": {"enum": list(ReviewState)},
        "note": {"type": "string", "maxLength": LONGEST_NOTE},
    },
}
_state: TypeAdapter[ReviewState] = TypeAdapter(ReviewState)


@router.get("", responses=answers(IncidentGroups))
async def groups(
    service: TheService,
    review: Annotated[str, Query(pattern=f"^({STATES})?$")] = "",
    status: IncidentStatus = "",
    cause: Cause = "",
    search: Search = "",
    since: Moment = None,
    until: Moment = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> dict[str, Any]:
    """Groups of incidents, last seen first, and all causes that there are."""
    wanted = Wanted("", status, cause, "", search.replace("\0", ""), since, until)
    page = await service.store.ask(service.store.lists.groups, wanted, review, limit, offset)
    causes = await service.store.ask(service.store.lists.causes)
    return {
        "groups": [views.incident_group(row) for row in page.rows],
        "total": page.total,
        "causes": [{"cause": cause, "count": count} for cause, count in causes],
    }


@router.put("/{group}/review", responses=answers(IncidentReview), openapi_extra=body(REVIEW))
async def review(
    service: TheService, request: Request, group: Annotated[str, Path(pattern="^[0-9a-f]{16}$")]
) -> dict[str, Any]:
    """Acknowledges or resolves a group, with a note. A resolved group that is seen again is open again."""
    said = _said(await read_body(request, 16 << 10), service.clock())
    if await service.store.ask(service.store.lists.review, group) is None:
        raise BodyError(404, "there is no such group of incidents")
    await asyncio.wrap_future(service.store.put_review(group, said))
    view = views.review_view(said)
    service.hub.publish("review", {"group": group, "review": view})
    return view


def _said(raw: bytes, now: float) -> Review:
    try:
        found = TypeAdapter(dict[str, str]).validate_json(raw)
        state = _state.validate_python(found.pop("state", None))
    except ValidationError:
        raise BodyError(422, f'the body must be {{"state": "{STATES}", "note": "..."}}') from None
    note = found.pop("note", "")
    if found or len(note) > LONGEST_NOTE:
        raise BodyError(422, f"only state and note are taken, and a note has at most {LONGEST_NOTE} characters")
    return Review(str(state), _lines(note), now)


def _lines(text: str) -> str:
    """A note may have lines; each of them is cleaned as every other text."""
    return "\n".join(clean(line, LONGEST_NOTE) for line in text.splitlines()).strip()
