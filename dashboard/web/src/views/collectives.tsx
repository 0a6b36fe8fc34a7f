// Collectives per process group: how far every rank is, and the last calls lined up by number.

import { useComputed, useSignal } from "@preact/signals";
import type { GroupRow } from "../api";
import { groupCalls, mismatched, type Call, type GroupCalls, type Variant } from "../model/calls";
import { sayRanks } from "../model/columns";
import { Meter, Nothing, Part, Site, Table, When } from "../parts/bits";
import type { Divergence } from "../records";
import type { Scene } from "../scene";
import { fromRanges, plural, ranges, ranks } from "../words";
import { EvidenceNote } from "./evidence_note";

const MOST_GROUPS = 24;
const FIRST_CALLS = 12;

export function CollectivesView({ scene }: { scene: Scene }) {
  const calls = useComputed(() => (scene.doc.value ? groupCalls(scene.doc.value) : []));
  const groups = scene.groups.value?.groups ?? [];
  if (!groups.length && !calls.value.length) return <Nothing>No process group has been made yet.</Nothing>;
  return (
    <>
      {scene.divergences.value.length > 0 && <Divergences found={scene.divergences.value} />}
      {groups.slice(0, MOST_GROUPS).map((group) => (
        <Part key={group.id} id={`group-${group.id.replaceAll(/\W/g, "-")}`} title={`Group ${group.name}`} note={about(group)}>
          <Heads group={group} />
          <Calls scene={scene} found={calls.value.find((known) => known.name === group.name && known.members.length === group.size)} />
        </Part>
      ))}
      {groups.length > MOST_GROUPS && <p class="quiet">and {groups.length - MOST_GROUPS} further groups</p>}
    </>
  );
}

function about(group: GroupRow): string {
  const parts = [group.description, group.backend, `${plural(group.size, "member")}: ${ranks(fromRanges(group.members))}`];
  return parts.filter((part) => part && part !== "undefined").join(" · ");
}

/** Members by how far they are, furthest first. */
function Heads({ group }: { group: GroupRow }) {
  return (
    <Table label={`How far the members of group ${group.name} are`} class="heads">
      <thead>
        <tr>
          <th scope="col" class="number">Issued</th>
          <th scope="col" class="number">Completed</th>
          <th scope="col">Members there</th>
          <th scope="col">Ranks</th>
        </tr>
      </thead>
      <tbody>
        {group.heads.slice(0, 8).map((head) => {
          const count = fromRanges(head.ranks).length;
          const behind = head.issued < group.issued;
          return (
            <tr key={`${head.issued} ${head.completed}`} class={behind ? "behind" : ""}>
              <td class="number">{head.issued < 0 ? "never" : head.issued}</td>
              <td class="number">{head.completed < 0 ? "never" : head.completed}</td>
              <td>
                <Meter value={count} most={group.size} text={`${count.toLocaleString("en")} of ${group.size.toLocaleString("en")}`} />
              </td>
              <td>
                {sayRanks(head.ranks)}
                {behind && <span class="tag">{group.issued - head.issued} fewer</span>}
              </td>
            </tr>
          );
        })}
      </tbody>
    </Table>
  );
}

function Calls({ scene, found }: { scene: Scene; found: GroupCalls | undefined }) {
  const all = useSignal(false);
  if (!found?.calls.length) {
    return (
      <p class="quiet">
        What the calls were (operation, sizes, lines of code) is known once evidence has been taken. <EvidenceNote scene={scene} />
      </p>
    );
  }
  const shown = all.value ? found.calls : found.calls.filter((call, index) => index < FIRST_CALLS || mismatched(call) || call.missing.length > 0);
  return (
    <>
      {scene.live && <EvidenceNote scene={scene} />}
      <Table label={`Last calls in group ${found.name}`} class="calls">
        <thead>
          <tr>
            <th scope="col" class="number">Number</th>
            <th scope="col" class="number">Step</th>
            <th scope="col">Call</th>
            <th scope="col">Arrived</th>
            <th scope="col">Missing</th>
            <th scope="col">Called from</th>
          </tr>
        </thead>
        {shown.map((call) => <CallRows key={call.seq} call={call} scene={scene} />)}
      </Table>
      {shown.length < found.calls.length && (
        <p class="more"><button type="button" onClick={() => (all.value = true)}>Show {found.calls.length - shown.length} earlier ones</button></p>
      )}
    </>
  );
}

function CallRows({ call, scene }: { call: Call; scene: Scene }) {
  const odd = mismatched(call);
  const open = call.variants.some((variant) => variant.open.length);
  return (
    <tbody class={`${odd ? "mismatch" : ""} ${open ? "open" : ""} ${call.missing.length ? "incomplete" : ""}`}>
      {call.variants.map((variant, index) => (
        <tr key={variant.ranks.join()}>
          {index === 0 && (
            <>
              <th scope="row" class="number" rowSpan={call.variants.length}>
                {call.seq}
                {odd && <span class="tag fault">mismatch</span>}
              </th>
              <td class="number" rowSpan={call.variants.length}>{call.step ?? "–"}</td>
            </>
          )}
          <td>
            <Operation variant={variant} />
          </td>
          <td class={variant.ranks.some((rank) => scene.culprits.value.has(rank)) && odd ? "blamed" : ""}>
            {ranges(variant.ranks)}
            {variant.open.length > 0 && <span class="tag">{variant.open.length === variant.ranks.length ? "waiting" : `${ranges(variant.open)} waiting`}</span>}
          </td>
          {index === 0 && (
            <td rowSpan={call.variants.length}>
              {call.missing.length ? <strong class="missing">{ranges(call.missing)}</strong> : <span class="quiet">{call.unknown.length ? `not known of ${ranges(call.unknown)}` : "none"}</span>}
            </td>
          )}
          <td>
            <Site frame={variant.where} />
          </td>
        </tr>
      ))}
    </tbody>
  );
}

function Operation({ variant }: { variant: Variant }) {
  return (
    <>
      <code class="op">{variant.op}</code>
      <span class="quiet">
        {variant.peer !== null && ` rank ${variant.peer}`}
        {variant.sizes && ` ${variant.sizes}`} {variant.dtypes}
      </span>
    </>
  );
}

function Divergences({ found }: { found: Divergence[] }) {
  return (
    <Part title="Where the ranks parted" note="the first step in which they issued different numbers of collectives">
      <ul>
        {found.map((divergence) => (
          <li key={`${divergence.group} ${divergence.step}`}>
            <strong>Step {divergence.step}</strong>
            {divergence.epoch !== null && ` (epoch ${divergence.epoch}, batch ${divergence.batch ?? "?"})`}, group {divergence.group}: {counts(divergence)}
            {divergence.doubtful && ", or only the counts of steps differ"}
            {divergence.seen_at > 0 && <span class="quiet"> · seen <When at={divergence.seen_at} short /></span>}
          </li>
        ))}
      </ul>
    </Part>
  );
}

function counts(divergence: Divergence): string {
  const byCount = new Map<number, number[]>();
  for (const [rank, count] of Object.entries(divergence.counts)) byCount.set(count, [...(byCount.get(count) ?? []), Number(rank)]);
  return [...byCount.entries()]
    .sort((a, b) => b[1].length - a[1].length)
    .map(([count, whose]) => `${ranks(whose)} issued ${count}`)
    .join(", ");
}
