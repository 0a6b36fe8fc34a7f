// The rank grid: one cell a rank, grouped by node, and the same in a few lines of text.

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { RankColumns } from "../api";
import { situations, uneventful, without } from "../model/columns";
import { cellAt, layGrid, neighbour, type GridLayout } from "../model/grid";
import { homes } from "../model/homes";
import { KINDS, kindOf, sayPhase, type KindName } from "../model/phases";
import { Table } from "../parts/bits";
import { CellPainter, type Tint } from "../parts/cells";
import { color, markPath, sharp, theme } from "../parts/paint";
import { useWidth } from "../parts/width";
import { go } from "../router";
import { role, type Scene } from "../scene";
import { duration, plural, ranges, ranks } from "../words";
import { sayRanks } from "../model/columns";

const MOST_SITUATIONS = 8;
const MANY = 64;
const NONE: ReadonlySet<number> = new Set();

export function RankGrid({ scene }: { scene: Scene }) {
  const tint = useSignal<Tint>("phase");
  const cursor = useSignal(-1);
  const hovered = useSignal(-1);
  const { ref, width } = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const painter = useMemo(() => new CellPainter(), []);
  const whole = useSignal(false);
  const culprits = scene.culprits.value;
  const lodging = useMemo(() => homes(scene.verdict.value), [scene.verdict.value]);
  const every = scene.columns.value;
  const calm = useMemo(() => (every && !whole.value ? uneventful(every, culprits) : NONE), [every, culprits, whole.value]);
  const columns = every && calm.size ? without(every, calm) : every;
  const kept = useRef<{ layout: GridLayout; nodes: string[]; node: number[]; width: number } | null>(null);
  if (columns && width && !(kept.current && kept.current.width === width && alike(kept.current.nodes, columns.nodes) && alike(kept.current.node, columns.node))) {
    kept.current = { layout: layGrid(columns.nodes, columns.node, width - 8), nodes: columns.nodes, node: columns.node, width };
  }
  const layout = width ? (kept.current?.layout ?? null) : null;

  useEffect(() => {
    if (canvas.current && layout && columns) {
      performance.mark("grid-start");
      painter.paint(canvas.current, layout, columns, { tint: tint.value, culprits, homes: lodging, cursor: cursor.value }, theme.value);
      performance.measure("grid", "grid-start");
    }
  }, [layout, columns, culprits, tint.value, cursor.value, theme.value]);

  if (!columns) return <p class="nothing">No rank has been heard of yet.</p>;
  const open = (index: number): void => {
    if (index >= 0) go(scene.link("ranks", columns.rank[index]!).replace(/^#/, ""));
  };
  const at = (event: MouseEvent): number => {
    const bounds = canvas.current!.getBoundingClientRect();
    return layout ? cellAt(layout, event.clientX - bounds.left - 4, event.clientY - bounds.top - 4) : -1;
  };
  const onKey = (event: KeyboardEvent): void => {
    if (!layout) return;
    if (event.key === "Enter" || event.key === " ") open(cursor.value);
    else if (event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End") cursor.value = neighbour(layout, cursor.value, event.key);
    else if (event.key === "Escape") cursor.value = -1;
    else return;
    event.preventDefault();
  };
  const told = hovered.value >= 0 ? hovered.value : cursor.value;
  return (
    <div class="grid">
      <div class="grid-head">
        <Legend tint={tint.value} columns={columns} />
        {every!.rank.length > MANY && <GoTo ranks={every!.rank} open={(rank) => go(scene.link("ranks", rank).replace(/^#/, ""))} />}
        <fieldset class="choice">
          <legend class="offscreen">Colour by</legend>
          {(["phase", "lag"] as const).map((name) => (
            <label key={name}>
              <input type="radio" name="tint" checked={tint.value === name} onChange={() => (tint.value = name)} />
              {name === "phase" ? "Phase" : "Lag"}
            </label>
          ))}
        </fieldset>
      </div>
      <div ref={ref} class="grid-room">
        <div
          role="application"
          aria-roledescription="rank grid"
          aria-label={`${plural(columns.rank.length, "rank")}. Arrow keys go from rank to rank, Enter opens one.`}
          tabIndex={0}
          onKeyDown={onKey}
          onFocus={() => (cursor.value < 0 && layout ? (cursor.value = layout.order[0] ?? -1) : undefined)}
          onBlur={() => (cursor.value = -1)}
          onMouseMove={(event) => (hovered.value = at(event))}
          onMouseLeave={() => (hovered.value = -1)}
          onMouseDown={(event) => event.preventDefault()}
          onClick={(event) => open(at(event))}
        >
          <canvas ref={canvas} class={hovered.value >= 0 ? "pointing" : ""} />
        </div>
      </div>
      <p class="told" aria-live={cursor.value >= 0 ? "polite" : "off"}>
        {told >= 0 && told < columns.rank.length ? <Told columns={columns} index={told} named={culprits.has(columns.rank[told]!) ? role(scene, columns.rank[told]!) : ""} home={lodging.has(columns.rank[told]!)} /> : hint(layout, columns)}
      </p>
      {(calm.size > 0 || whole.value) && (
        <p class="collapsed">
          {calm.size > 0 && <>{plural(calm.size, "node")} with {plural(every!.rank.length - columns.rank.length, "rank")}, all in the same place, left out. </>}
          <button type="button" class="link" onClick={() => (whole.value = !whole.value)}>{whole.value ? "Leave out nodes on which nothing stands out" : "Show all nodes"}</button>
        </p>
      )}
      {columns.absent && (
        <p class="absent">
          <strong>Never heard of:</strong> ranks {sayRanks(columns.absent)}.
        </p>
      )}
    </div>
  );
}

/** A rank by its number, where there are too many to point at. */
function GoTo({ ranks: known, open }: { ranks: readonly number[]; open: (rank: number) => void }) {
  const text = useSignal("");
  const missing = useSignal(false);
  return (
    <form
      class="go-to"
      onSubmit={(event) => {
        event.preventDefault();
        const rank = Number(text.value);
        missing.value = !/^\d+$/.test(text.value.trim()) || !known.includes(rank);
        if (!missing.value) open(rank);
      }}
    >
      <label>
        Go to rank <input inputMode="numeric" size={6} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      </label>
      <span role="status">{missing.value && "no such rank"}</span>
    </form>
  );
}

function alike<T>(a: readonly T[], b: readonly T[]): boolean {
  return a.length === b.length && a.every((value, index) => value === b[index]);
}

function hint(layout: GridLayout | null, columns: RankColumns): string {
  const nodes = layout?.blocks.length ?? 0;
  return `${plural(columns.rank.length, "rank")} on ${plural(nodes, "node")}. Point at a cell for details, choose it for the stacks of the rank.`;
}

function Told({ columns, index, named, home }: { columns: RankColumns; index: number; named: string; home: boolean }) {
  const rank = columns.rank[index]!;
  const epoch = columns.epoch[index];
  const parts = [
    sayPhase(columns.phases[columns.phase[index]!] ?? "start"),
    columns.step[index]! >= 0 ? `step ${columns.step[index]}` : "no step yet",
    epoch === null || epoch === undefined ? "" : `epoch ${epoch}`,
    columns.lag[index] ? `${plural(columns.lag[index]!, "step")} behind` : "",
    columns.still_s[index]! > 2 ? `still for ${duration(columns.still_s[index]!)}` : "moving",
    columns.exception[rank] ?? "",
    columns.waiting_for[rank] ? `waits for ${columns.waiting_for[rank]}`.replace("waits for waits for", "waits for") : "",
  ];
  return (
    <>
      <strong>rank {rank}</strong> on {columns.nodes[columns.node[index]!]}
      {columns.pid[index] ? `, pid ${columns.pid[index]}` : ""}
      {named && <span class={`tag ${home ? "home" : "fault"}`}>{named}</span>}: {parts.filter(Boolean).join(", ")}
    </>
  );
}

function Legend({ tint, columns }: { tint: Tint; columns: RankColumns }) {
  const present = new Set([...new Set(columns.phase)].map((phase) => kindOf(columns.phases[phase] ?? "start")));
  if (tint === "lag") {
    return (
      <p class="legend">
        <span class="lag-scale" aria-hidden="true" /> level with the fastest … far behind
      </p>
    );
  }
  return (
    <ul class="legend" aria-label="Phases">
      {(Object.keys(KINDS) as KindName[]).filter((kind) => present.has(kind)).map((kind) => (
        <li key={kind}>
          <Swatch kind={kind} />
          {KINDS[kind].says}
        </li>
      ))}
    </ul>
  );
}

export function Swatch({ kind }: { kind: KindName }) {
  const ref = useRef<HTMLCanvasElement>(null);
  const changed = theme.value;
  useEffect(() => {
    const context = sharp(ref.current!, 16, 16);
    context.clearRect(0, 0, 16, 16);
    context.fillStyle = color(`phase-${kind}`);
    context.beginPath();
    context.roundRect(0, 0, 16, 16, 3);
    context.fill();
    context.strokeStyle = color("cell-ink");
    context.lineWidth = 1.6;
    context.lineCap = "round";
    markPath(context, KINDS[kind].mark, 4, 4, 8);
  }, [kind, changed]);
  return <canvas ref={ref} class="swatch" aria-hidden="true" />;
}

/** The grid in words: ranks in the same situation on one line. */
export function Situations({ scene }: { scene: Scene }) {
  const found = useComputed(() => (scene.columns.value ? situations(scene.columns.value, scene.culprits.value, scene.ended.value, homes(scene.verdict.value)) : []));
  const shown = found.value.slice(0, MOST_SITUATIONS);
  const lodging = homes(scene.verdict.value);
  if (!shown.length) return null;
  return (
    <Table label="Ranks by situation" class="situations">
      <thead>
        <tr>
          <th scope="col">Ranks</th>
          <th scope="col">Where</th>
          <th scope="col" class="number">Step</th>
          <th scope="col">Waiting for, or exception</th>
          <th scope="col" class="number">Still for</th>
        </tr>
      </thead>
      <tbody>
        {shown.map((line) => (
          <tr key={`${line.ranks[0]} ${line.phase} ${line.says}`} class={!line.atFault ? "" : lodging.has(line.ranks[0]!) ? "home" : "at-fault"}>
            <th scope="row">
              <a href={scene.link("ranks", line.ranks[0])}>
                <span class="offscreen">{line.ranks.length > 1 ? "ranks" : "rank"} </span>
                {ranges(line.ranks)}
              </a>
              {line.ranks.length > 2 && <span class="quiet"> ({line.ranks.length.toLocaleString("en")})</span>}
              {line.atFault && <span class={`tag ${lodging.has(line.ranks[0]!) ? "home" : "fault"}`}>{role(scene, line.ranks[0]!)}</span>}
            </th>
            <td>
              {line.phase ? <><Swatch kind={kindOf(line.phase)} /> {sayPhase(line.phase)}</> : "on the move"}
              {line.state && <span class="tag">{STATES[line.state] ?? line.state}</span>}
            </td>
            <td class="number">{line.step >= 0 ? line.step : "–"}</td>
            <td>{line.says || <span class="quiet">–</span>}</td>
            <td class="number">{line.still_s > 2 ? duration(line.still_s) : <span class="quiet">–</span>}</td>
          </tr>
        ))}
      </tbody>
      {found.value.length > shown.length && (
        <caption>and {ranks(found.value.slice(MOST_SITUATIONS).flatMap((line) => line.ranks))} elsewhere</caption>
      )}
    </Table>
  );
}

export const STATES: Record<string, string> = {
  T: "stopped",
  t: "held by a debugger",
  D: "uninterruptible",
  X: "gone",
  Z: "zombie",
  S: "sleeping",
  R: "running",
  I: "idle",
};
