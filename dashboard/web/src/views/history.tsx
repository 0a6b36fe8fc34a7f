// Every job that the dashboard has kept.

import { useEffect } from "preact/hooks";
import type { CauseCount, JobList } from "../api";
import { Nothing } from "../parts/bits";
import { setMood } from "../parts/paint";
import { title } from "../words";
import { JobTable } from "./jobs";
import { Choice, ListPage, Pages, Search, SINCE, useList } from "./lists";

const STATES = ["starting", "running", "waiting", "hung", "lingering", "failed", "finished", "silent"];

const PAST = new Set(["hung", "lingering"]); // what the dashboard finds also of jobs that have ended since

export function HistoryPage() {
  useEffect(() => {
    document.title = "History · hangwatch";
    setMood("");
  }, []);
  const { found, error } = useList<JobList>("/jobs", ["search", "state", "cause", "since"], null);
  const causes = useList<{ causes: CauseCount[] }>("/incident-groups", [], null).found?.causes ?? [];
  const filters = (
    <>
      <Choice name="state" label="State" options={[["", "any"], ...STATES.map((state): [string, string] => [state, PAST.has(state) ? `${state}, or was` : state])]} />
      <Choice name="cause" label="Cause" options={[["", "any or none"], ...causes.map(({ cause }): [string, string] => [cause, title(cause)])]} />
      <Choice name="since" label="Seen in" options={SINCE} />
      <Search label="Search jobs" hint="Search by name, id or command" />
    </>
  );
  return (
    <ListPage title="History" tab="history" filters={filters} busy={found === null}>
      {error && <Nothing>{error}</Nothing>}
      {found && (found.jobs.length ? <JobTable jobs={found.jobs} /> : <Nothing>No job matches.</Nothing>)}
      {found && <Pages total={found.total} noun="job" />}
    </ListPage>
  );
}
