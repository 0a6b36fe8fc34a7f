"""No process listens at MASTER_ADDR and MASTER_PORT, or some ranks connect elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.start.arrivals import Arrivals, address
from hangwatch.facts.start.connections import is_lost
from hangwatch.model import Certainty, Culprit, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

_FIX_MADE = (
    "set {name} once, before the ranks are started, and hand it to all of them (also for an init_method): what each"
    " rank computes for itself, as by hash() of a text or from a free port, differs between processes"
)
_FIX_GIVEN = (
    "use the MASTER_ADDR and MASTER_PORT with which the processes are started ({given}): init_method='env://', and none"
    " of the program's own in os.environ; a free port that each rank looks for is another one on each"
)
_NAMES = ("MASTER_ADDR", "MASTER_PORT")
CONNECTED_S = 5.0  # seconds after its start until a rank has connected: a connection may be a moment late
STORE_RETRIES_S = 100.0  # seconds after the master came: a client of its store tries again in pauses of up to 90 s


def unreachable_master(case: Case) -> Finding | None:
    """Some ranks try to connect to the master, and are not connected: another address, or no process listens there."""
    arrivals = Arrivals(case)
    lost = [view for view in arrivals.waiting if is_lost(view)]
    if not lost:
        return None
    host = next((view for view in arrivals.waiting if view.rank == 0 and view not in lost), None)
    astray = _astray(arrivals, lost)
    if astray:
        return _goes_elsewhere(case, arrivals, astray)
    if any(view.rank == 0 for view in arrivals.late) or any(each.rank == 0 for each in arrivals.unborn):
        return None  # rank 0 is on its way
    if arrivals.newcomers and 0 in arrivals.absent:
        return None  # a process that has not said its rank yet may be rank 0
    if host is None and 0 in arrivals.absent:
        return _no_listener(case, arrivals, lost)
    return _no_way(case, arrivals, lost)


def _astray(arrivals: Arrivals, lost: list[RankView]) -> list[RankView]:
    """The ranks whose address is another one than that of most ranks; of two halves, those that differ from rank 0.

    The rendezvous is at rank 0's address, whatever was meant: with two ranks, rank 1 is the one that connects
    elsewhere.
    """
    known = {view.rank: address(view) for view in (*arrivals.waiting, *arrivals.late)}
    if len(set(known.values())) < 2:
        return []
    most, count = Counter(known.values()).most_common(1)[0]
    right = most if 2 * count > len(known) else known.get(0, most)
    return [view for view in arrivals.waiting if known[view.rank] != right and (view in lost or view.rank == 0)]


def _goes_elsewhere(case: Case, arrivals: Arrivals, astray: list[RankView]) -> Finding:
    others = [view for view in (*arrivals.waiting, *arrivals.late) if view not in astray]
    wrong, right = address(astray[0]), address(others[0])
    settled = all(view.steady and arrivals.age(view) > CONNECTED_S for view in astray)
    outvoted = len(others) > len(astray)  # of two halves, either may be what was meant
    name = "MASTER_PORT" if wrong[0] == right[0] else "MASTER_ADDR"
    everyone, culprits = [*astray, *others], [view.rank for view in astray]
    made = sorted(view.rank for view in everyone if _is_made_there(view, name))
    meant = right[0] if name == "MASTER_ADDR" else right[1]
    return Finding(
        "rendezvous-unreachable-master",
        Certainty.PROVEN if settled and outvoted else Certainty.LIKELY,
        f"{case.say(culprits, 'looks', 'look', capital=True)} for the master at"
        f" {_addresses(astray)}, and {case.name([view.rank for view in others])} at {_addresses(others)}.",
        fix=_fix_made(everyone, name) if made else f"give every rank the same {name}: {meant}",
        culprits=tuple(view.culprit() for view in astray),
        victims=tuple(view.rank for view in others),
        evidence=(
            *map(_looks_at, everyone[: words.SHOWN]),
            *_is_own(case, made, name),
        ),
        status=Status.HUNG if settled or case.stalled(culprits) else Status.WAITING,
    )


def _looks_at(view: RankView) -> str:
    """An address that its environment has not came from the program: from os.environ, or by an init_method."""
    at = ":".join(address(view))
    own = any(_is_made_there(view, name) for name in _NAMES)
    return (
        f"rank {view.rank} (pid {view.pid}) {'looks for the master at' if own else 'has MASTER_ADDR:MASTER_PORT'} {at}"
        f"{_connected(view)}"
    )


def _is_made_there(view: RankView, name: str) -> bool:
    """Its program has chosen that part of the address itself: the process was started without it, or with another."""
    process, reading = view.evidence.process, view.reading
    if process is None or reading is None or not process.environment:
        return False
    own = reading.identity.environment.get(name)
    return own is not None and process.environment.get(name) != own


def _is_own(case: Case, made: list[int], name: str) -> Iterator[str]:
    """With what the processes of those ranks were started instead."""
    given: dict[str, list[int]] = {}
    for view in case.views(made):
        started = view.evidence.process.environment.get(name) if view.evidence.process is not None else None
        given.setdefault(f"with {name}={started}" if started else f"without {name}", []).append(view.rank)
    for started, ranks in list(given.items())[: words.SHOWN]:
        processes = words.verb(len(ranks), "process", "processes")
        yield (
            f"the {processes} of {case.say(ranks, 'was', 'were')} started {started}: the"
            " program chooses that address itself"
        )


def _fix_made(views: Iterable[RankView], name: str) -> str:
    """To use what their launcher gives to all of them, if it does; else to give it."""
    environments = [view.evidence.process.environment if view.evidence.process is not None else {} for view in views]
    given = {tuple(each.get(name, "") for name in _NAMES) for each in environments}
    if len(given) == 1 and all(found := next(iter(given))):
        return _FIX_GIVEN.format(given=":".join(found))
    return _FIX_MADE.format(name=name)


def _addresses(views: Iterable[RankView]) -> str:
    """The one address that all have, or the first ones: every rank may have looked for a free port of its own."""
    found = dict.fromkeys(":".join(address(view)) for view in views)
    more = len(found) - words.SHOWN
    return words.listed([*list(found)[: words.SHOWN], *([f"{more} more"] if more > 0 else [])])


def _connected(view: RankView) -> str:
    return " and is not connected to it" if is_lost(view) else ""


def _no_listener(case: Case, arrivals: Arrivals, lost: list[RankView]) -> Finding:
    place = ":".join(address(lost[0]))
    ranks = [view.rank for view in lost]
    return Finding(
        "rendezvous-unreachable-master",
        Certainty.PROVEN if arrivals.no_other_rank_can_join else Certainty.LIKELY,
        f"Rank 0 never came: no process listens at {place}, where"
        f" {case.say(ranks, 'tries', 'try')} to connect{words.at(lost[0].where)}.",
        fix="start rank 0, or give MASTER_ADDR and MASTER_PORT of the process that is rank 0",
        culprits=(Culprit(0),),
        victims=tuple(ranks),
        evidence=(
            "there is no process for rank 0",
            f"{case.say(ranks, 'has', 'have')} no connection to {place}",
            *_name_evidence(case, lost),
        ),
        status=_status(case, arrivals, ranks),
    )


def _status(case: Case, arrivals: Arrivals, ranks: list[int]) -> Status:
    """Their launcher may be about to start rank 0."""
    if arrivals.no_other_rank_can_join:
        return Status.HUNG
    longest = max(arrivals.waited(view) for view in case.views(ranks))
    return Status.HUNG if case.stalled(ranks) and longest > arrivals.patience_s else Status.WAITING


def _no_way(case: Case, arrivals: Arrivals, lost: list[RankView]) -> Finding | None:
    """Same address, and no connection: a name that does not resolve, a firewall, another network."""
    if len(lost) == len(arrivals.waiting) and arrivals.absent:
        return None
    place = ":".join(address(lost[0]))
    ranks = [view.rank for view in lost]
    unknown = any(node.master_resolves is False for node in case.snapshot.nodes)
    why = "the name does not resolve" if unknown else "no connection comes about"
    return Finding(
        "rendezvous-unreachable-master",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} cannot reach the master at {place}: {why}.",
        culprits=tuple(view.culprit() for view in lost) if len(lost) < len(arrivals.waiting) else (),
        victims=tuple(view.rank for view in arrivals.waiting if view not in lost),
        evidence=(
            *(f"rank {view.rank} (pid {view.pid}) has no connection to {place}" for view in lost[: words.SHOWN]),
            *_name_evidence(case, lost),
        ),
        status=Status.WAITING if _tries_again(arrivals, lost) else None,
        awaited=tuple(ranks),
    )


def _tries_again(arrivals: Arrivals, lost: list[RankView]) -> bool:
    """They have waited since before the master came: their pauses have grown, and the next try may connect them."""
    came = next((arrivals.waited(view) for view in arrivals.waiting if view.rank == 0 and view not in lost), None)
    before = came is not None and all(arrivals.waited(view) > came + CONNECTED_S for view in lost)
    return before and came is not None and came < STORE_RETRIES_S


def _name_evidence(case: Case, lost: list[RankView]) -> Iterable[str]:
    if any(node.master_resolves is False for node in case.snapshot.nodes):
        yield f"the name {address(lost[0])[0]} does not resolve on this machine"
