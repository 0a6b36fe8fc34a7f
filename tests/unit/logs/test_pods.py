"""What Kubernetes says of pods, beside logs and alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangwatch.logs import Logs, assess, completed, read
from hangwatch.model import Judgement
from hangwatch.queues import Assessment, Queues
from tests.unit.logs.lines import gave_up

DESCRIBED = """\
Name:             trainer-worker-2
Namespace:        ml
Node:             gpu-7f/10.0.4.3
Status:           Running
Containers:
  pytorch:
    State:          {state}
      Reason:       {reason}
{code}    Last State:     Terminated
      Reason:       {last}
      Exit Code:    {last_code}
    Restart Count:  1
"""


def described(
    state: str, reason: str = "x", code: int | None = None, last: str = "OOMKilled", last_code: int = 137
) -> str:
    told = "" if code is None else f"      Exit Code:    {code}\n"
    return DESCRIBED.format(state=state, reason=reason, code=told, last=last, last_code=last_code)


def assessed(tmp_path: Path, **texts: str) -> Assessment:
    logs = Logs()
    for name, text in texts.items():
        path = tmp_path / name.replace("_", ".")
        path.write_text(text)
        assert read(path, logs)
    return assess(completed(Queues(), logs), logs)


def judgement(tmp_path: Path, **texts: str) -> Judgement:
    found = assessed(tmp_path, **texts).judgement
    assert found is not None
    return found


def test_a_pod_that_was_killed_for_lack_of_memory_is_the_cause(tmp_path: Path) -> None:
    found = judgement(tmp_path, pod_txt=described("Waiting", "CrashLoopBackOff"), job_log=gave_up(0, 7)).verdict
    assert (found.cause, found.certainty, found.victims) == ("rank-died", "likely", (0,))
    assert found.summary == (
        "Kubernetes says of pod trainer-worker-2 on node gpu-7f: OOMKilled, exit code 137 (signal 9);"
        " no line tells which ranks ran there."
    )
    assert [(each.rank, each.host) for each in found.culprits] == [(None, "gpu-7f")]
    assert "more memory" in found.fix


def test_a_pod_that_ended_well_or_runs_again_is_no_failure(tmp_path: Path) -> None:
    well = assessed(tmp_path, pod_txt=described("Terminated", "Completed", 0, "Error", 1))
    assert well.judgement is None
    assert not any("Kubernetes" in said for said in well.sentences)
    again = assessed(tmp_path, pod_txt=described("Running"))
    assert again.judgement is None
    assert "OOMKilled, exit code 137 (signal 9), and it has been started again since" in again.sentences[1]
    # BUT where others wait, they may wait for the one that was started again
    found = judgement(tmp_path, pod_txt=described("Running"), job_log=gave_up(0, 7)).verdict
    assert (found.cause, found.certainty) == ("rank-died", "undetermined")


def test_an_exit_code_that_may_follow_from_another_end_blames_no_pod(tmp_path: Path) -> None:
    found = assessed(tmp_path, pod_txt=described("Terminated", "Error", 1))
    assert found.judgement is None
    assert "Error, exit code 1" in found.sentences[1]


def test_pods_as_json(tmp_path: Path) -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    status = {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended}]}
    pod = {"kind": "Pod", "metadata": {"name": "w-3"}, "spec": {"nodeName": "gpu-1"}, "status": status}
    for document in (pod, {"kind": "List", "items": [pod]}):
        found = judgement(tmp_path, pod_json=json.dumps(document)).verdict
        assert found.summary.startswith("Kubernetes says of pod w-3 on node gpu-1: OOMKilled, exit code 137")
    evicted = {**pod, "status": {"phase": "Failed", "reason": "Evicted"}}
    assert "Evicted" in judgement(tmp_path, pod_json=json.dumps(evicted)).verdict.summary


def state(reason: str, code: int) -> dict[str, object]:
    return {"terminated": {"exitCode": code, "reason": reason}}


def of_containers(*containers: tuple[str, dict[str, object]]) -> str:
    statuses = [{"name": name, "state": said} for name, said in containers]
    return json.dumps({"kind": "Pod", "metadata": {"name": "w-3"}, "status": {"containerStatuses": statuses}})


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "Pod", "metadata": {"name": "a"}, "status": {"containerStatuses": null}}',
        '{"kind": "Pod", "metadata": null, "spec": null, "status": null}',
        '{"kind": "Pod", "status": {"containerStatuses": [null, {"state": null}, {"state": {"running": null}}]}}',
        '{"kind": "Pod", "status": {"containerStatuses": {"a": 1}}, "metadata": []}',
    ],
)
def test_what_is_null_says_nothing(tmp_path: Path, text: str) -> None:
    assert assessed(tmp_path, pod_json=text).judgement is None


@pytest.mark.parametrize("text", ['{"items": null}', "[" * 100_000, '{"items": [3]}'])
def test_json_that_is_no_pod_is_no_log(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert not read(tmp_path / "x.json", Logs())


def test_a_sidecar_that_died_beside_a_good_end_is_not_blamed(tmp_path: Path) -> None:
    found = assessed(
        tmp_path, pod_json=of_containers(("main", state("Completed", 0)), ("istio-proxy", state("OOMKilled", 137)))
    )
    assert found.judgement is None
    assert "Kubernetes says of container istio-proxy of pod w-3: OOMKilled" in found.sentences[1]


def test_a_container_that_died_beside_a_sidecar_that_ended_well_is_blamed(tmp_path: Path) -> None:
    both = of_containers(("istio-proxy", state("Completed", 0)), ("main", state("OOMKilled", 137)))
    assert "container main of pod w-3" in judgement(tmp_path, pod_json=both).verdict.summary


def test_containers_as_described_are_told_apart_and_those_of_the_start_do_not_count(tmp_path: Path) -> None:
    ended = "    State:          Terminated\n      Reason:       {}\n      Exit Code:    {}\n"
    init = "Name:  w0\nNode:  n/1.2.3.4\nInit Containers:\n  prepare:\n" + ended.format("Completed", 0)
    main = init + "Containers:\n  main:\n" + ended.format("OOMKilled", 137)
    assert "pod w0 on node n: OOMKilled" in judgement(tmp_path, pod_txt=main).verdict.summary
    well = (
        init + "Containers:\n  main:\n" + ended.format("Completed", 0) + "  shipper:\n" + ended.format("OOMKilled", 137)
    )
    assert assessed(tmp_path, pod_txt=well).judgement is None


def test_a_pod_with_several_containers_is_blamed_once(tmp_path: Path) -> None:
    both = of_containers(("main", state("OOMKilled", 137)), ("loader", state("OOMKilled", 137)))
    evicted = json.loads(both)
    evicted["status"]["reason"] = "Evicted"
    for text in (both, json.dumps(evicted)):
        found = judgement(tmp_path, pod_json=text).verdict
        assert (found.certainty, len(found.culprits)) == ("likely", 1)


LISTED = """\
NAME             READY   STATUS      RESTARTS      AGE   IP           NODE
trainer-0        1/1     Running     1 (9m ago)    31m   10.244.1.7   node-11
trainer-1        0/1     {status}0             31m   10.244.4.7   node-17
"""


def listed(status: str) -> str:
    return LISTED.format(status=status.ljust(12))


def test_the_table_of_pods_names_the_one_that_was_killed(tmp_path: Path) -> None:
    found = judgement(tmp_path, pods_txt=listed("OOMKilled"))
    assert [each.host for each in found.verdict.culprits] == ["node-17"]
    assert found.verdict.summary.startswith("Kubernetes says of pod trainer-1 on node node-17: OOMKilled")
    assert "more memory" in found.verdict.fix
    # AND without the columns of `-o wide` its name is what is known
    narrow = "\n".join(line[:50] for line in listed("Evicted").splitlines())
    assert [each.host for each in judgement(tmp_path, pods_txt=narrow).verdict.culprits] == ["trainer-1"]


def test_pods_that_run_or_failed_for_a_reason_not_told_are_not_blamed(tmp_path: Path) -> None:
    for status in ("Running", "Completed", "Error"):
        assert assessed(tmp_path, pods_txt=listed(status)).judgement is None


def test_the_fix_for_an_eviction_follows_the_resource(tmp_path: Path) -> None:
    head = "Name:             trainer-1\nNode:             node-12/10.2.0.12\nStatus:           Failed\n"
    for resource, fix in (("ephemeral-storage", "the node's own disk"), ("memory", "more memory")):
        told = (
            f"Reason:           Evicted\nMessage:          The node was low on resource: {resource}. Threshold: 1Gi\n"
        )
        found = judgement(tmp_path, pod_txt=head + told)
        assert f"Evicted (The node was low on resource: {resource});" in found.verdict.summary
        assert fix in found.verdict.fix


def test_a_pod_of_another_program_than_the_others_is_not_likely_the_cause(tmp_path: Path) -> None:
    """Pods of a namespace are listed together: that of a collector of logs was evicted, and the job's two run."""
    job = listed("Running")
    other = f"{'fluentbit-x7k2p':<17}0/1     {'Evicted':<12}0             31m   10.244.4.9   node-17\n"
    found = judgement(tmp_path, pods_txt=job + other).verdict
    assert (found.certainty, [each.host for each in found.culprits]) == ("undetermined", ["node-17"])
    # AND a pod of the same job in another role is of it
    own = other.replace("fluentbit-x7k2p", "trainer-ps-0   ")
    assert judgement(tmp_path, pods_txt=job + own).verdict.certainty == "likely"
