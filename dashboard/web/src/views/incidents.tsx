// Incidents of all jobs: those of one cause and line are one entry, which a person acknowledges and resolves.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, type IncidentGroup, type IncidentGroups, type IncidentList, type IncidentSummary } from "../api";
import { Clamped, Nothing, When } from "../parts/bits";
import { StateIcon } from "../parts/icon";
import { setMood } from "../parts/paint";
import { write } from "../router";
import { connect } from "../stream";
import { plural, title } from "../words";
import { Review } from "./review";
import { Choice, ListPage, Pages, Search, SINCE, useList } from "./lists";

const STATUSES: [string, string][] = [["", "any"], ["hung", "hung"], ["failed", "failed"], ["lingering", "lingering"], ["recovered", "recovered"]];
const REVIEWS: [string, string][] = [["", "any"], ["open", "open"], ["acknowledged", "acknowledged"], ["resolved", "resolved"]];
const NAMES = ["search", "status", "review", "cause", "since"];

export function IncidentsPage() {
  const news = useSignal(0);
  useEffect(() => {
    document.title = "Incidents · hangwatch";
    setMood("");
    const again = (): void => void (news.value += 1);
    return connect(null, { incident: again, review: again });
  }, []);
  const { found, error } = useList<IncidentGroups>("/incident-groups", NAMES, news.value);
  const causes = (found?.causes ?? []).map(({ cause, count }): [string, string] => [cause, `${title(cause)} (${count})`]);
  const filters = (
    <>
      <Choice name="review" label="Review" options={REVIEWS} />
      <Choice name="status" label="Status" options={STATUSES} />
      <Choice name="cause" label="Cause" options={[["", "any"], ...causes]} />
      <Choice name="since" label="Seen in" options={SINCE} />
      <Search label="Search incidents" hint="Search by sentence, line, job or host" />
    </>
  );
  return (
    <ListPage title="Incidents" tab="incidents" filters={filters} busy={found === null}>
      {error && <Nothing>{error}</Nothing>}
      {found && (found.groups.length ? <ol class="groups">{found.groups.map((group) => <Group key={group.group} group={group} />)}</ol> : <Nothing>No incident matches.</Nothing>)}
      {found && <Pages total={found.total} noun="kind of incident" several="kinds of incident" />}
    </ListPage>
  );
}

function Group({ group }: { group: IncidentGroup }) {
  const last = group.last;
  return (
    <li class={`group ${group.review.state}`}>
      <header>
        <span class={`state ${last.status}`}><StateIcon state={last.status} /> {last.status}</span>
        <h2><a href={write({ page: "incident", id: last.id, view: "overview", rank: null })}>{title(last.cause)}</a></h2>
        {last.place && <code class="place">{last.place}</code>}
        <span class="quiet">{last.cause}</span>
      </header>
      <Clamped>{last.summary}</Clamped>
      <p class="quiet">
        seen {group.count > 1 ? <>{group.count} times{group.jobs > 1 && ` in ${plural(group.jobs, "job run")}`}, last</> : "once,"}{" "}
        <When at={group.last_at} said /> in <a href={write({ page: "job", id: last.job, view: "overview", rank: null })}>{last.job_name}</a>
        {group.count > 1 && <>, first <When at={group.first_at} said /></>}
      </p>
      {group.count > 1 && <Members group={group} />}
      <Review group={group.group} review={group.review} />
    </li>
  );
}

/** All incidents of a group, asked for when the reader opens them. */
function Members({ group }: { group: IncidentGroup }) {
  const found = useSignal<IncidentSummary[] | null>(null);
  const open = (event: Event): void => {
    if ((event.currentTarget as HTMLDetailsElement).open && !found.value) {
      ask<IncidentList>(`/incidents?group=${group.group}&limit=100`).then((answer) => (found.value = [...answer.incidents]), () => undefined);
    }
  };
  return (
    <details onToggle={open}>
      <summary>All {group.count}</summary>
      <ul class="plain">
        {(found.value ?? []).map((incident) => (
          <li key={incident.id}>
            <a href={write({ page: "incident", id: incident.id, view: "overview", rank: null })}><When at={incident.opened_at} /></a> {incident.job_name}, {incident.status}
          </li>
        ))}
      </ul>
    </details>
  );
}
