"""A stand-in for the dashboard with one job of very many ranks: what is measured is the page, not the service."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hangwatch.model import GroupMembers, Phase
from hangwatch.wire import codec, members
from hangwatch_dashboard.page import Page
from tests.examples import uneven_steps_judgement

PHASES = [str(phase) for phase in Phase]
BUSY = [PHASES.index(name) for name in ("data", "forward", "forward", "backward", "backward", "optimizer")]
KEY = "large-1"


def ranks(count: int, per_node: int, moment: int, culprit: int | None = None) -> dict[str, Any]:
    """RankColumns of a job at a moment; from the one in which `culprit` is given on, nothing moves."""
    step = 1000 + moment
    everybody = range(count)
    hung = culprit is not None
    phase = [BUSY[(rank * 7 + moment) % len(BUSY)] if not hung else PHASES.index("backward") for rank in everybody]
    if culprit is not None:
        phase[culprit] = PHASES.index("between")
    lag = [(rank * 31 + moment) % 97 == 0 for rank in everybody]
    return {
        "job": KEY,
        "at": time.time(),
        "phases": PHASES,
        "nodes": [f"gpu-{first:05d}" for first in range(0, count, per_node)],
        "rank": list(everybody),
        "node": [rank // per_node for rank in everybody],
        "pid": [4000 + rank for rank in everybody],
        "phase": phase,
        "step": [step - behind for behind in lag],
        "epoch": [0] * count,
        "batch": [step] * count,
        "lag": [int(behind) for behind in lag],
        "still_s": [9.5 if hung else 0.1 * (rank % 5) for rank in everybody],
        "patience_s": [120.0] * count,
        "steps": [step] * count,
        "data_s": [0.16 * step] * count,
        "compute_s": [0.6 * step + rank % 13 for rank in everybody],
        "sync_s": [0.4 * step] * count,
        "last_step_s": [1.39 + 0.01 * (rank % 7) for rank in everybody],
        "issued": [2 * step] * count,
        "waiting_for": {str(rank): f"all_reduce {2 * step} of group 0" for rank in everybody} if hung else {},
        "exception": {},
        "process_state": {},
        "absent": "",
    }


def groups(count: int, moment: int) -> dict[str, Any]:
    everybody = members.text(range(count))
    at = {"issued": 2000 + moment, "completed": 2000 + moment}
    group = codec.encode(GroupMembers("a", "0", everybody, "default_pg", "nccl"))
    row = {**group, **at, "size": count, "heads": [{**at, "ranks": everybody}], "behind": ""}
    return {"job": KEY, "at": time.time(), "groups": [row]}


def detail(count: int, per_node: int, culprit: int | None) -> dict[str, Any]:
    """JobDetail."""
    now = time.time()
    state = "running" if culprit is None else "hung"
    firsts = range(0, count, per_node)
    return {
        "key": KEY,
        "id": "x",
        "name": "large",
        "world_size": count,
        "launcher": "torchrun",
        "command": "train.py",
        "started_at": now - 400,
        "last_seen_at": now,
        "closed_at": None,
        "nodes": len(firsts),
        "nodes_expected": None,
        "nodes_silent": 0,
        "ranks": count,
        "state": state,
        "state_text": state,
        "steps_per_s": 0.7,
        "step": 1000,
        "step_max": 1001,
        "incident": None,
        "warnings": 0,
        "dropped": 0,
        "judgement": codec.encode(uneven_steps_judgement(count, culprit, per_node)) if culprit is not None else None,
        "judged_at": now,
        "open_incident": None,
        "groups": [],
        "warning_list": [],
        "divergences": [],
        "capture": None,
        "node_list": [node(first, min(first + per_node, count)) for first in firsts],
    }


def node(first: int, end: int) -> dict[str, Any]:
    name = f"gpu-{first:05d}"
    return {
        "node": name,
        "host": name,
        "ranks": list(range(first, end)),
        "silent_s": 0.4,
        "clock_offset_s": 0.0,
        "last_seen_at": time.time(),
        "closed_at": None,
        "dropped": 0,
        "closed": False,
        "exit_code": None,
        "facts": None,
    }


def app(static: Path, count: int = 10_000, per_node: int = 8, culprit: int = 7777) -> Starlette:
    """A job that sends all its ranks once a second, and hangs as soon as `state.hangs` is set.

    `state.sent` counts the times that it has sent them.
    """
    page = Page(static)

    async def events(_request: Request) -> Response:
        return StreamingResponse(stream(), media_type="text/event-stream")

    async def stream() -> AsyncIterator[bytes]:
        yield event("hello", {"server_time": time.time(), "version": "0", "stale_after_s": 5})
        moment, shown = 0, None
        while True:
            hangs = made.state.hangs
            blamed = culprit if hangs else None
            moment += not hangs
            if hangs != shown:
                shown = hangs
                yield event("job", detail(count, per_node, blamed))
            yield event("ranks", ranks(count, per_node, moment, blamed))
            yield event("collectives", groups(count, made.state.sent))
            made.state.sent += 1
            await asyncio.sleep(1)

    async def answer(request: Request) -> Response:
        path = request.url.path
        if path.endswith("/session"):
            return JSONResponse({"required": False, "signed_in": True, "may_delete": False})
        if path.endswith(f"/jobs/{KEY}"):
            return JSONResponse(detail(count, per_node, None))
        if path.endswith("/incidents"):
            return JSONResponse({"incidents": [], "total": 0})
        if path.endswith("/history"):
            wanted = members.parse(request.query_params["ranks"])
            columns: list[Any] = []
            moments = dict.fromkeys(("at", "step", "phase", "step_s", "data_s", "still_s"), columns)
            return JSONResponse({"job": KEY, "phases": PHASES, "rank": list(wanted), **moments})
        return JSONResponse({"error": "not here"}, 404)

    async def file(request: Request) -> Response:
        return page.get(request.path_params["path"])

    made = Starlette(
        routes=[
            Route("/api/v1/events", events),
            Route("/api/{path:path}", answer),
            Route("/{path:path}", file),
        ]
    )
    made.state.sent, made.state.hangs = 0, False
    return made


def event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
