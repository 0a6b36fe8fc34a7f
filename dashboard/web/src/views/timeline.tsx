// Phases of the ranks as lanes over the last minutes.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { kindOf, KINDS, sayPhase, type KindName } from "../model/phases";
import { inside, moved, resolved, STRIDES, zoomed, type Span } from "../model/span";
import { hasPhases, type Lane, type Segment } from "../model/tracks";
import { Nothing, Part } from "../parts/bits";
import { color, markPath, sharp, theme } from "../parts/paint";
import { useWidth } from "../parts/width";
import { go } from "../router";
import type { Scene } from "../scene";
import { duration, plural, ranks, shortTime, tickMoment, timeOfDay } from "../words";
import { Swatch } from "./grid";
import { ShownRanks } from "./shown";
import { SpanChoice } from "./span";

const LANE = 20;
const HEAD = 22;
const NAMES = 62;
const LABEL = 72; // a time of day, with room after it
const LOOKS = "Each rank is sampled once a second; a phase that began and ended between two samples is not shown.";

export function TimelineView({ scene }: { scene: Scene }) {
  useEffect(() => scene.needHistory(), [scene, scene.columns.value === null]);
  const chosen = scene.span;
  const told = useSignal<{ rank: number; segment: Segment } | null>(null);
  const { ref, width } = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const grab = useRef<{ x: number; span: Span } | null>(null);
  const lanes = scene.lanes.value;
  const whole = extent(lanes);
  const span = whole && resolved(chosen.value, whole);

  useEffect(() => {
    if (canvas.current && width && span) paint(canvas.current, width, lanes, span, scene.culprits.value);
  }, [lanes, width, span?.from, span?.to, theme.value, scene.culprits.value]);

  if (!whole || whole.to <= whole.from) {
    return <><ShownRanks scene={scene} /><Nothing>No history yet: it is kept from when the dashboard first heard of the job.</Nothing></>;
  }
  const zoom = (factor: number, center = 0.5): void => void (chosen.value = zoomed(span!, whole, factor, center));
  const move = (share: number): void => void (chosen.value = moved(span!, whole, share));
  const share = (event: MouseEvent): number => {
    const bounds = canvas.current!.getBoundingClientRect();
    return (event.clientX - bounds.left - NAMES) / (width - NAMES);
  };
  const under = (event: MouseEvent): { rank: number; segment: Segment } | null => {
    const bounds = canvas.current!.getBoundingClientRect();
    const lane = lanes[Math.floor((event.clientY - bounds.top - HEAD) / LANE)];
    const at = span!.from + share(event) * (span!.to - span!.from);
    const segment = lane?.segments.find((segment) => segment.from <= at && at <= segment.to);
    return lane && segment ? { rank: lane.rank, segment } : null;
  };
  const onKey = (event: KeyboardEvent): void => {
    const act: Record<string, () => void> = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "0": () => (chosen.value = null) };
    if (!act[event.key]) return;
    act[event.key]!();
    event.preventDefault();
  };
  return (
    <>
      <ShownRanks scene={scene} />
      <Part
        title="Timeline"
        note={<SpanChoice chosen={chosen} whole={whole} />}
      >
        <LaneKey lanes={lanes} />
        <div ref={ref} class="timeline">
          <div
            role="application"
            aria-roledescription="timeline"
            aria-label={`Phases of ${plural(lanes.length, "rank")} over ${duration(span!.to - span!.from)}. Plus and minus zoom, arrow keys move.`}
            tabIndex={0}
            onKeyDown={onKey}
            onWheel={(event) => {
              if (!event.ctrlKey && !event.metaKey) return;
              event.preventDefault();
              zoom(event.deltaY < 0 ? 0.8 : 1.25, Math.min(1, Math.max(0, share(event))));
            }}
            onPointerDown={(event) => (grab.current = { x: event.clientX, span: span! })}
            onPointerUp={() => (grab.current = null)}
            onPointerLeave={() => {
              grab.current = null;
              told.value = null;
            }}
            onPointerMove={(event) => {
              const held = grab.current;
              if (held && chosen.value) {
                const by = ((held.x - event.clientX) / (width - NAMES)) * (held.span.to - held.span.from);
                chosen.value = inside({ from: held.span.from + by, to: held.span.to + by }, whole);
              } else told.value = under(event);
            }}
            onDblClick={(event) => {
              const found = under(event);
              if (found) go(scene.link("ranks", found.rank).replace(/^#/, ""));
            }}
          >
            <canvas ref={canvas} />
          </div>
        </div>
        <p class="told">{told.value ? say(told.value.rank, told.value.segment) : "Point at a rank's row for its phase and time. Ctrl + wheel and the buttons zoom, dragging moves, a double click opens the rank."}</p>
        <Kept scene={scene} lanes={lanes} />
      </Part>
      <Stillness scene={scene} lanes={lanes} />
    </>
  );
}

/** Where the lanes come from: what happened between two samples is not in them. */
function Kept({ scene, lanes }: { scene: Scene; lanes: Lane[] }) {
  if (scene.live) return <p class="quiet">{LOOKS}</p>;
  const shown = new Set(lanes.map((lane) => lane.rank));
  const ranksShown = (scene.doc.value?.ranks ?? []).filter((rank) => shown.has(rank.rank));
  const without = ranksShown.filter((rank) => !hasPhases(rank)).map((rank) => rank.rank);
  return (
    <p class="quiet">
      {without.length < ranksShown.length && `${LOOKS} `}
      {without.length > 0 && `Of ${ranks(without)} no phases were kept, but the last steps: the lanes show those.`}
    </p>
  );
}

function extent(lanes: Lane[]): Span | null {
  const all = lanes.flatMap((lane) => (lane.segments.length ? [lane.segments[0]!.from, lane.segments.at(-1)!.to] : []));
  return all.length ? { from: Math.min(...all), to: Math.max(...all) } : null;
}

function say(rank: number, segment: Segment): string {
  const step = segment.step >= 0 ? `, step ${segment.step}` : "";
  return `rank ${rank}: ${sayPhase(segment.phase)}${step}, ${timeOfDay(segment.from)} to ${timeOfDay(segment.to)} (${shortTime(segment.to - segment.from)})${segment.still ? ", nothing moves" : ""}`;
}

function LaneKey({ lanes }: { lanes: Lane[] }) {
  const present = new Set(lanes.flatMap((lane) => lane.segments.map((segment) => kindOf(segment.phase))));
  return (
    <ul class="legend" aria-label="Phases">
      {(Object.keys(KINDS) as KindName[]).filter((kind) => present.has(kind)).map((kind) => (
        <li key={kind}>
          <Swatch kind={kind} />
          {KINDS[kind].says}
        </li>
      ))}
      <li><span class="chip hatched" aria-hidden="true" /> nothing moves</li>
    </ul>
  );
}

/** What the lanes end with, in words. */
function Stillness({ scene, lanes }: { scene: Scene; lanes: Lane[] }) {
  const last = lanes.flatMap((lane) => (lane.segments.length ? [{ rank: lane.rank, segment: lane.segments.at(-1)! }] : []));
  const still = last.filter((entry) => entry.segment.still);
  if (!still.length) return null;
  return (
    <details>
      <summary>In words</summary>
      <ul>
        {still.map(({ rank, segment }) => (
          <li key={rank}>
            <a href={scene.link("ranks", rank)}>rank {rank}</a> {sayPhase(segment.phase)} since {timeOfDay(segment.from)}, {duration(segment.to - segment.from)}
          </li>
        ))}
      </ul>
    </details>
  );
}

function paint(canvas: HTMLCanvasElement, width: number, lanes: Lane[], span: Span, culprits: ReadonlySet<number>): void {
  const height = HEAD + lanes.length * LANE + 2;
  const context = sharp(canvas, width, height);
  context.clearRect(0, 0, width, height);
  const x = (at: number): number => NAMES + ((at - span.from) / (span.to - span.from)) * (width - NAMES);
  ticks(context, span, x, height);
  lanes.forEach((lane, index) => {
    const y = HEAD + index * LANE;
    const atFault = culprits.has(lane.rank);
    context.font = `${atFault ? "700" : "400"} 12px system-ui, sans-serif`;
    context.fillStyle = color(atFault ? "fault-ink" : "ink-2");
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(`rank ${lane.rank}`, NAMES - 8, y + LANE / 2);
    if (atFault) context.fillRect(0, y + 2, 3, LANE - 4);
    context.save();
    context.beginPath();
    context.rect(NAMES, y, width - NAMES, LANE);
    context.clip();
    for (const segment of lane.segments) {
      if (segment.to >= span.from && segment.from <= span.to) paintSegment(context, segment, x(segment.from), x(segment.to), y);
    }
    context.restore();
  });
}

function paintSegment(context: CanvasRenderingContext2D, segment: Segment, from: number, to: number, y: number): void {
  const width = Math.max(1, to - from - (to - from > 6 ? 1 : 0));
  const kind = kindOf(segment.phase);
  context.fillStyle = color(`phase-${kind}`);
  context.fillRect(from, y + 2, width, LANE - 4);
  context.strokeStyle = color("cell-ink");
  if (segment.still) hatch(context, from, width, y);
  if (width > 22) {
    context.lineWidth = 1.5;
    context.fillStyle = color(`phase-${kind}`);
    const start = Math.max(from, NAMES);
    context.fillRect(start, y + 2, 18, LANE - 4);
    markPath(context, KINDS[kind].mark, start + 5, y + LANE / 2 - 4, 8);
    if (segment.step >= 0 && width > 74 && !segment.still) {
      context.font = "11px system-ui, sans-serif";
      context.fillStyle = color("cell-ink");
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.fillText(String(segment.step), start + 20, y + LANE / 2 + 0.5);
    }
  }
}

function hatch(context: CanvasRenderingContext2D, from: number, width: number, y: number): void {
  context.save();
  context.beginPath();
  context.rect(from, y + 2, width, LANE - 4);
  context.clip();
  context.globalAlpha = 0.35;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = from - LANE; x < from + width; x += 6) {
    context.moveTo(x, y + LANE);
    context.lineTo(x + LANE, y);
  }
  context.stroke();
  context.restore();
}


function ticks(context: CanvasRenderingContext2D, span: Span, x: (at: number) => number, height: number): void {
  const most = Math.min(8, (x(span.to) - x(span.from)) / LABEL); // as many as there is room for
  const stride = STRIDES.find((stride) => (span.to - span.from) / stride < most) ?? STRIDES.at(-1)!;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  for (let at = Math.ceil(span.from / stride) * stride; at <= span.to; at += stride) {
    context.fillStyle = color("rule");
    context.fillRect(Math.round(x(at)), 4, 1, height);
    context.fillStyle = color("ink-2");
    if (x(at) < x(span.to) - 50) context.fillText(tickMoment(at, stride), Math.round(x(at)) + 4, 14);
  }
}
