"""Events of Kubernetes: what ended a pod, what keeps one from starting, and what is routine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangwatch.model import Judgement
from tests.unit.logs.lines import gave_up
from tests.unit.logs.test_pods import assessed

HEAD = "LAST SEEN   TYPE      REASON             OBJECT                   MESSAGE"
FULL = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
DESCRIBED = """\
Name:             w-1
Namespace:        ml
Node:             <none>
Status:           Pending
Containers:
  pytorch:
    State:          Waiting
      Reason:       ImagePullBackOff
Events:
  Type     Reason     Age                   From               Message
  ----     ------     ----                  ----               -------
  Normal   Scheduled  5m30s                 default-scheduler  Successfully assigned ml/w-1 to gpu-2
  Warning  Failed     4m (x4 over 5m29s)    kubelet            Error: ErrImagePull
  Normal   BackOff    29s (x18 over 5m28s)  kubelet            Back-off pulling image "reg/train:1"
"""


def row(age: str, reason: str, name: str, said: str, *, normal: bool = False) -> str:
    return f"{age:<11} {'Normal' if normal else 'Warning':<9} {reason:<18} {name:<24} {said}"


def table(*rows: str) -> str:
    return "\n".join((HEAD, *rows)) + "\n"


def judgement(tmp_path: Path, **texts: str) -> Judgement:
    found = assessed(tmp_path, **texts).judgement
    assert found is not None
    return found


def test_a_pod_that_finds_no_node_has_not_started(tmp_path: Path) -> None:
    text = table(row("12m", "Started", "pod/w-0", "Started container x", normal=True))
    found = judgement(tmp_path, ev_txt=text + row("2m10s", "FailedScheduling", "pod/w-1", FULL) + "\n")
    assert (found.status, found.verdict.cause, found.verdict.certainty) == ("waiting", "node-not-started", "likely")
    assert found.verdict.summary == f"Pod w-1 has not started: FailedScheduling: {FULL}"
    assert [(each.rank, each.host) for each in found.verdict.culprits] == [(None, "w-1")]


def test_it_is_why_a_launcher_waited_in_vain(tmp_path: Path) -> None:
    came = "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined."
    files = {"ev_txt": table(row("2m", "FailedScheduling", "pod/w-1", FULL)), "job_log": came}
    found = judgement(tmp_path, **files)
    assert (found.status, found.verdict.cause) == ("failed", "node-not-started")
    assert "1 of 2 came" in found.verdict.details[0]


@pytest.mark.parametrize(
    ("reason", "said", "fix"),
    [
        ("FailedMount", 'MountVolume.SetUp failed for volume "data"', "volume"),
        ("BackOff", 'Back-off pulling image "reg/train:1"', "image's name"),
        ("Failed", "Error: ImagePullBackOff", "image's name"),
        ("FailedCreatePodSandBox", "Failed to create pod sandbox", ""),
    ],
)
def test_other_reasons_that_keep_a_pod_from_starting(reason: str, said: str, fix: str, tmp_path: Path) -> None:
    found = judgement(tmp_path, ev_txt=table(row("2m", reason, "pod/w-1", said))).verdict
    assert found.cause == "node-not-started"
    assert fix in found.fix


def test_events_below_a_described_pod(tmp_path: Path) -> None:
    found = judgement(tmp_path, pod_txt=DESCRIBED).verdict
    assert found.summary == 'Pod w-1 has not started: BackOff: Back-off pulling image "reg/train:1"'


def test_routine_events_alarm_nobody(tmp_path: Path) -> None:
    text = table(
        row("14m", "FailedScheduling", "pod/w-0", FULL),
        row("13m", "FailedMount", "pod/w-0", "MountVolume.SetUp failed"),
        row("13m", "Failed", "pod/w-0", "Error: ErrImagePull"),
        row("12m", "Scheduled", "pod/w-0", "Successfully assigned", normal=True),
        row("11m", "Started", "pod/w-0", "Started container x", normal=True),
        row("10m", "Unhealthy", "pod/w-0", "Readiness probe failed: dial tcp"),
        row("9m", "NodeNotReady", "node/gpu-3", "Node gpu-3 status is now: NodeNotReady", normal=True),
        row("8m", "NodeReady", "node/gpu-3", "Node gpu-3 status is now: NodeReady", normal=True),
        row("7m", "TaintManagerEviction", "pod/w-0", "Cancelling deletion of Pod ml/w-0", normal=True),
        row("3m", "Killing", "pod/w-0", "Stopping container x", normal=True),
    )
    found = assessed(tmp_path, ev_txt=text)
    assert found.judgement is None
    # BUT in the order of time: what failed after the start is told
    assert not any("FailedScheduling" in said for said in found.sentences)


@pytest.mark.parametrize(
    ("reason", "said", "cause"),
    [
        ("Evicted", "The node was low on resource: memory.", "rank-died"),
        ("Preempted", "Preempted by pod 7f on node gpu-1", "rank-died"),
        ("Killing", "Container x failed liveness probe, will be restarted", "rank-died"),
        ("NodeNotReady", "Node is not ready", "node-lost"),
        ("TaintManagerEviction", "Marking for deletion Pod ml/w-3", "node-lost"),
    ],
)
def test_what_ends_a_pod(reason: str, said: str, cause: str, tmp_path: Path) -> None:
    text = table(
        row("12m", "Started", "pod/w-3", "Started container x", normal=True), row("3m", reason, "pod/w-3", said)
    )
    found = judgement(tmp_path, ev_txt=text, job_log=gave_up(0, 7)).verdict
    assert (found.cause, found.certainty, found.victims) == (cause, "likely", (0,))
    assert found.summary == f"Kubernetes says of pod w-3: {reason} ({said}); no line tells which ranks ran there."
    assert [(each.rank, each.host) for each in found.culprits] == [(None, "w-3")]


def test_of_several_pods_none_is_known_to_be_the_cause(tmp_path: Path) -> None:
    rows = [row("3m", "Evicted", f"pod/w-{each}", "The node was low on resource: memory.") for each in (1, 2)]
    assert judgement(tmp_path, ev_txt=table(*rows)).verdict.certainty == "undetermined"
    assert (
        judgement(tmp_path, ev_txt=table(row("3m", "NodeNotReady", "node/n", "x"))).verdict.certainty == "undetermined"
    )


def test_a_pod_that_came_back_counts_where_others_wait(tmp_path: Path) -> None:
    back = row("1m", "Started", "pod/w-3", "Started container x", normal=True)
    text = table(row("3m", "Killing", "pod/w-3", "Container x failed liveness probe, will be restarted"), back)
    found = assessed(tmp_path, ev_txt=text)
    assert found.judgement is None
    assert any("it came back since" in said for said in found.sentences)
    (tmp_path / "two").mkdir()
    assert judgement(tmp_path / "two", ev_txt=text, job_log=gave_up(0, 7)).verdict.certainty == "undetermined"


def test_a_container_that_ends_again_and_again_is_no_cause(tmp_path: Path) -> None:
    found = assessed(tmp_path, ev_txt=table(row("3m", "BackOff", "pod/w-3", "Back-off restarting failed container x")))
    assert found.judgement is None
    assert "pod w-3 is started again and again, since its container ends; see its log" in found.sentences


def test_events_as_json(tmp_path: Path) -> None:
    def event(reason: str, at: str) -> dict[str, object]:
        about = {"kind": "Pod", "name": "w-1"}
        return {"kind": "Event", "involvedObject": about, "reason": reason, "message": "m", "lastTimestamp": at}

    failed, started = event("FailedScheduling", "2026-11-21T10:00:00Z"), event("Started", "2026-11-21T10:05:00Z")
    assert (
        judgement(tmp_path, ev_json=json.dumps({"kind": "List", "items": [failed]})).verdict.culprits[0].host == "w-1"
    )
    assert assessed(tmp_path, ev_json=json.dumps({"kind": "List", "items": [failed, started]})).judgement is None
    odd = {"kind": "Event", "involvedObject": 7, "lastTimestamp": []}
    assert assessed(tmp_path, ev_json=json.dumps(odd)).judgement is None


def test_wide_tables_and_those_of_all_namespaces(tmp_path: Path) -> None:
    wide = "3m  Warning  Evicted  pod/w-3    kubelet, gpu-1  The node was low on resource: memory.  3m  1  w-3.17a"
    for text in (f"ml   {table(row('3m', 'Evicted', 'pod/w-3', 'low')).splitlines()[1]}", wide):
        assert judgement(tmp_path, ev_txt=f"{HEAD}\n{text}\n").verdict.cause == "rank-died"


OLD = (
    "{age:<12}12m          26        {name}.154598cea28dc43b   {kind:<15} {part:<20} {type}   {reason}   {by}   {said}"
)


def old_row(age: str, name: str, reason: str, said: str, *, kind: str = "Pod", part: str = "", by: str = "x") -> str:
    return OLD.format(age=age, name=name, kind=kind, part=part, type="Normal", reason=reason, by=by, said=said)


def test_the_table_of_an_older_kubectl(tmp_path: Path) -> None:
    """It names the event, and not the pod; the column before the type is mostly empty."""
    head = "LAST SEEN   FIRST SEEN   COUNT     NAME   KIND   SUBOBJECT   TYPE   REASON   SOURCE   MESSAGE"
    waits = old_row("11m", "w-1", "FailedScheduling", FULL, by="default-scheduler")
    began = old_row("12m", "w-0", "Started", "Started container", part="spec.containers{x}", by="kubelet, gpu-2")
    found = judgement(tmp_path, ev_txt="\n".join((head, waits, began, ""))).verdict
    assert found.cause == "node-not-started"
    assert "w-1" in found.summary
    assert "Insufficient nvidia.com/gpu" in found.summary
    lost = old_row("1m", "gpu-3", "NodeNotReady", "Node gpu-3 status is now: NodeNotReady", kind="Node")
    assert judgement(tmp_path, ev_txt="\n".join((head, began, lost, ""))).verdict.cause == "node-lost"
