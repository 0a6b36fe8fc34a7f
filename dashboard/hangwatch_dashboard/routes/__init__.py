"""The routes below /api/v1, one file a subject. docs/api.md says what they answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, cast

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.service import Service

API = "/api/v1"
KEY = r"^[a-z0-9-]{1,64}$"
ID = r"^[A-Za-z0-9-]{1,64}$"

JobKey = Annotated[str, Path(pattern=KEY)]
RecordId = Annotated[str, Path(pattern=ID)]


Search = Annotated[str, Query(max_length=200, description="text that must occur, in any case")]
Cause = Annotated[str, Query(max_length=80, description="id of a cause of the catalogue")]
Moment = Annotated[float | None, Query(ge=0, le=1e11, description="seconds since 1970")]
Limit = Annotated[int, Query(ge=1, le=500)]
Offset = Annotated[int, Query(ge=0, le=1_000_000)]


def service_of(request: Request) -> Service:
    """The service behind a request."""
    return cast(Service, request.app.state.service)


def client_of(request: Request) -> str:
    """The address that a request comes from."""
    return request.client.host if request.client else "?"


async def known_query(request: Request) -> None:
    """Refuses parameters that an address does not know: a filter with a slip in its name would filter nothing.

    Raises BodyError(422).
    """
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    known = set(_names(route.dependant))
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        there = f"it knows {', '.join(sorted(known))}" if known else "it knows none"
        raise BodyError(422, f"{', '.join(unknown)[:100]}: no parameter of this address; {there}")


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.alias for parameter in dependant.query_params)
    for each in dependant.dependencies:
        yield from _names(each)


def api_router(path: str = "", *, tag: str) -> APIRouter:
    """A router below /api/v1."""
    return APIRouter(prefix=f"{API}{path}", tags=[tag], dependencies=[Depends(known_query)])


TheService = Annotated[Service, Depends(service_of)]


async def job_of(service: TheService, job: JobKey) -> LiveJob:
    """The run that an address names. Raises BodyError(404)."""
    found = await service.registry.load(job)
    if found is None:
        raise BodyError(404, "there is no such job")
    return found


TheJob = Annotated[LiveJob, Depends(job_of)]
