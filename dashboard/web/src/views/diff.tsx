// The ranks' diff: their recorded calls, aligned by call path, a column for each group of equal ranks.

import { cells, compared, titleOf, told } from "../model/diff";
import { Nothing, Part, Table } from "../parts/bits";
import type { DiffIteration, RanksDiff } from "../records";
import type { Scene } from "../scene";
import { ranks } from "../words";
import { EvidenceNote } from "./evidence_note";

export function DiffView({ scene }: { scene: Scene }) {
  const diff = scene.verdict.value?.diff;
  if (!diff?.iterations.length) {
    return (
      <Nothing>
        The recorded calls of the ranks do not differ, or none were recorded. <EvidenceNote scene={scene} />
      </Nothing>
    );
  }
  const partly = compared(diff, scene.columns.value?.rank.length ?? 0);
  return (
    <>
      {diff.iterations.map((iteration, index) => (
        <Iteration key={index} diff={diff} iteration={iteration} />
      ))}
      {partly && <p class="quiet">{partly}</p>}
    </>
  );
}

function Iteration({ diff, iteration }: { diff: RanksDiff; iteration: DiffIteration }) {
  const title = titleOf(iteration);
  return (
    <Part title={`Calls in ${title}`}>
      <Table label={`Calls of the ranks in ${title}`} class="diff">
        <thead>
          <tr>
            {diff.lanes.map((lane) => <th key={lane[0]} scope="col">{ranks(lane)}</th>)}
            <th scope="col">Difference</th>
          </tr>
        </thead>
        <tbody>
          {iteration.rows.map((row, index) => (
            <tr key={index} class={row.note ? "behind" : ""}>
              {cells(diff, row.calls).map((call, lane) => (
                <td key={lane}>{call ? <code title={(call.caller ?? call.where)?.file}>{told(call)}</code> : <span class="quiet">-</span>}</td>
              ))}
              <td>{row.note}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </Part>
  );
}
