"""The result of a preflight as one HTML file, to be sent to an administrator. Nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.doctor.model import Check, Link, Report, State
from hangwatch.report import html
from hangwatch.report.html.markup import Html, block, details, join, section, table, tag

SIGNS = {State.OK: "ok", State.WARN: "warning", State.FAIL: "FAILS", State.SKIP: "not here"}
TITLES = {
    State.FAIL: "This job would fail or hang",
    State.WARN: "Nothing keeps this job from running; some things are worth a look",
    State.OK: "Nothing was found that would keep this job from running",
}


def page(report: Report) -> str:
    """The whole document."""
    title = f"hangwatch doctor: {TITLES[report.worst]}"
    body = tag("main", *_parts(report))
    return f"<!doctype html>\n{tag('html', tag('head', *html.head(title)), tag('body', body), lang='en')}\n"


def _parts(report: Report) -> tuple[Html, ...]:
    wrong = [check for check in report.checks if check.state in (State.FAIL, State.WARN)]
    well = [check for check in report.checks if check not in wrong]
    return (
        _banner(report),
        section("What to do", _checks(sorted(wrong, key=lambda check: check.state is not State.FAIL))),
        section("What is in order", _checks(well)),
        section("Links between ranks", *(_matrix(report, kind) for kind in ("gloo", "nccl"))),
        section("Ranks", _ranks(report)),
        section("The launch", _launch(report)),
    )


def _banner(report: Report) -> Html:
    kind = {State.FAIL: "", State.WARN: " warn", State.OK: " good"}.get(report.worst, "")
    ranks = len({each.rank for each in report.job.ranks})
    where = f"{ranks} of {report.job.world_size} ranks on {len(report.job.by_host)} hosts"
    said = f"{where}, looked at for {report.took_s:.0f} s, {html.moment(report.at)}"
    return tag("section", tag("p", TITLES[report.worst], class_="summary"), tag("p", said), class_=f"verdict{kind}")


def _checks(checks: Sequence[Check]) -> Html:
    rows = [(SIGNS[check.state], f"{check.family}: {check.name}", _found(check), check.advice) for check in checks]
    return table(("", "check", "what was seen", "what to do"), rows, [check.state is State.FAIL for check in checks])


def _found(check: Check) -> Html:
    more = details("details", block("\n".join(check.details))) if check.details else None
    return join((check.found, more))


def _matrix(report: Report, kind: str) -> Html:
    """Bandwidth from each rank (row) to each other (column), as the row has measured it."""
    links: dict[int, dict[int, Link]] = {}
    for each in report.job.ranks:
        for link in each.links:
            if link.kind == kind and link.bandwidth:
                links.setdefault(each.rank, {})[link.peer] = link
    peers = sorted({peer for row in links.values() for peer in row})
    rows = [(f"rank {rank}", *(_cell(row.get(peer)) for peer in peers)) for rank, row in sorted(links.items())]
    return (
        join((tag("h3", f"{kind}, MB/s and microseconds"), table(("", *map(str, peers)), rows))) if rows else Html("")
    )


def _cell(link: Link | None) -> str:
    if link is None or link.bandwidth is None or link.latency_s is None:
        return ""
    return f"{link.bandwidth / 1e6:,.0f} / {link.latency_s * 1e6:,.0f}"


def _ranks(report: Report) -> Html:
    rows = [
        (
            each.rank, each.host, each.pid, each.address, each.versions.get("torch", ""), each.code.commit[:10],
            ", ".join(f"{gpu.index}: {gpu.name}" for gpu in each.gpus[:8]),
            "; ".join(f"{stage.name}: {stage.problem}" for stage in each.stages if stage.problem),
        )
        for each in report.job.ranks
    ]  # fmt: skip
    return table(("rank", "host", "pid", "address", "torch", "code", "GPUs of its host", "problems"), rows)


def _launch(report: Report) -> Html:
    launch = report.job.launch
    code = "was ended" if launch.exit_code is None else f"ended with code {launch.exit_code}"
    output = block("\n".join(launch.output)) if launch.output else None
    return join((tag("p", tag("code", " ".join(launch.command)), f" {code} after {launch.took_s:.0f} s"), output))
