"""Ranks that wait for a key of a store: another rank has to set it, and nothing records which one."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from hangwatch.facts.call_site import comes_before, path
from hangwatch.facts.calls.last_calls import last_calls, may_be_ahead
from hangwatch.facts.case import Case
from hangwatch.facts.processes.own_code import IN_CODE
from hangwatch.ranks.view import RankView

_WAITS = re.compile(r"c10d::\w*Store::(do)?(get|wait|multiGet)\b", re.IGNORECASE)
_OF_TORCH = re.compile(r"(^|/)libtorch\w*\.so")
_REMOTE_PORT = re.compile(r"^socket .* -> .*:(\d+)$")


def waits_for_key(view: RankView, ports: Container[str]) -> bool:
    """Its main thread is in `get` or `wait` of a store, or reads from a store's server, below a line of the user's.

    torch's own waits (the rendezvous, new groups) stand below functions of torch, and are none of these. `ports` are
    those of stores that ranks serve.
    """
    if view.now.doing not in IN_CODE or view.where is None:
        return False
    native = [frame for frame in view.evidence.main_stack if frame.native]
    if any(_WAITS.match(frame.function) for frame in native):
        return True
    of_torch = not native or any(_OF_TORCH.search(frame.file) for frame in native)  # else a socket of the program's own
    return of_torch and _reads_from_store(view, ports)


def store_ports(views: Iterable[RankView]) -> frozenset[str]:
    """The ports at which ranks serve a store of the program's own: a store's server is its first client, too.

    Other processes are clients as well, unlike those of a server that a rank has for itself.
    """
    return frozenset(port for view in views for port in _served_to_itself_and_others(view))


def _served_to_itself_and_others(view: RankView) -> set[str]:
    sockets = view.evidence.process.sockets if view.evidence.process is not None else ()
    listening = {_port(each.local) for each in sockets if each.state == "listen"}
    established = [each for each in sockets if each.state == "established"]
    own = {_port(each.local) for each in established}
    others = {_port(each.local) for each in established if _port(each.remote) not in own}
    return listening & others & {_port(each.remote) for each in established}


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def polls_store(view: RankView) -> bool:
    """It pauses in a loop of its own that asks the store, by its source: for what another rank has not done yet."""
    return view.sleeps and view.now.loop is not None and view.now.loop.asks_store


def awaits_key(view: RankView, ports: Container[str]) -> bool:
    """It waits for what another rank has to set in a store, in one call or in a loop that asks again and again."""
    return waits_for_key(view, ports) or polls_store(view)


def _reads_from_store(view: RankView, ports: Container[str]) -> bool:
    process = view.evidence.process
    if process is None or process.blocked_on is None:
        return False
    found = _REMOTE_PORT.match(process.blocked_on.path)
    return found is not None and (found[1] == process.environment.get("MASTER_PORT") or found[1] in ports)


def gone_past(case: Case, view: RankView) -> tuple[int, ...]:
    """Ranks on lines behind that at which `view` waits, where no loop leads back to it."""
    mine = path(view.evidence.main_stack)
    if view.now.in_loop is not False:
        return ()
    return tuple(other.rank for other in case if comes_before(mine, path(other.evidence.main_stack)))


def ended_past(case: Case, view: RankView) -> tuple[int, ...]:
    """Ranks that ended in a call behind the line that raised the error of `view`, where no step counts their turns."""
    mine = path(view.exception.frames) if view.exception is not None else ()
    return tuple(
        rank
        for rank, last in last_calls(case).items()
        if rank != view.rank and may_be_ahead(case.ranks[rank], last.site.lines, [mine])
    )
