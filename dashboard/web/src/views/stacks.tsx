// Stacks of all ranks, merged: a frame is as wide as it has ranks in it.

import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { isUser } from "../model/frames";
import { at as nodeAt, branchesOf, layOut, userOnly, type Box } from "../model/icicle";
import { speedscope } from "../model/speedscope";
import { Nothing, Part } from "../parts/bits";
import { Download } from "../parts/download";
import { useWidth } from "../parts/width";
import type { StackNode } from "../records";
import type { Scene } from "../scene";
import { place, plural, ranges, ranks } from "../words";
import { EvidenceNote } from "./evidence_note";
import { QuotedAt } from "./excerpt";
import { Thread } from "./rank";

const ROW = 24;
const MOST_LINKS = 48;
const MIN_WIDTH = 620;
const READABLE = 124; // of a branch of ranks at fault, in pixels
const ROOM_OF_BRANCH = 160; // what the whole is widened by for each of these, so that the others keep a part of it
const MOST_WIDENED = 12;

export function StacksView({ scene }: { scene: Scene }) {
  const ownOnly = useSignal(false);
  const zoomed = useSignal("");
  const chosen = useSignal<string | null>(null); // null: as long as the reader has not chosen, where they stand who are at fault
  const doc = scene.doc.value;
  const tree = useComputed(() => {
    const whole = scene.doc.value?.stack_tree ?? [];
    return ownOnly.value ? userOnly(whole) : whole;
  });
  if (!doc?.stack_tree.length) {
    return (
      <Nothing>
        {doc ? "The stacks could not be had; the evidence view says why." : "Stacks are taken when a job stops, or when you ask for them."} <EvidenceNote scene={scene} />
      </Nothing>
    );
  }
  const root = zoomed.value ? nodeAt(tree.value, zoomed.value) : null;
  const shown: readonly StackNode[] = root ? [root] : tree.value;
  const trail = chosen.value ?? whereTheyStand(tree.value, scene.culprits.value);
  const picked = trail ? nodeAt(tree.value, trail) : null;
  const total = new Set(tree.value.flatMap((node) => node.ranks)).size;
  const choose = (wanted: string): void => {
    chosen.value = trail === wanted ? "" : wanted;
  };
  return (
    <Part
      title="Stacks of all ranks"
      note={
        <span class="tools">
          <EvidenceNote scene={scene} />
          <label><input type="checkbox" checked={ownOnly.value} onChange={() => { ownOnly.value = !ownOnly.value; zoomed.value = ""; }} /> your code only</label>
          {scene.speedscope ? (
            <a class="button" href={scene.speedscope} download>Download for speedscope</a>
          ) : (
            <Download name={`hangwatch-${doc.id}.speedscope.json`} text={() => speedscope(doc)}>Download for speedscope</Download>
          )}
        </span>
      }
    >
      <p class="quiet">
        A frame is as wide as the ranks that are in it ({plural(total, "rank")}); the outermost is on top. Where a branch is outlined, ranks stand elsewhere than most.
      </p>
      {root && (
        <p>
          <button type="button" onClick={() => (zoomed.value = "")}>Whole tree</button> from {root.frame.function}
        </p>
      )}
      <Icicle nodes={shown} prefix={root ? zoomed.value : ""} scene={scene} chosen={trail} total={total} onChoose={choose} />
      {picked ? (
        <Chosen node={picked} inner={trail.split("\u0001").length > 2} scene={scene} onZoom={() => (zoomed.value = zoomed.value === trail ? "" : trail)} />
      ) : (
        <p class="told">Choose a frame to see which ranks are in it, and each rank's own stacks.</p>
      )}
    </Part>
  );
}

/** The user's own line in which the ranks at fault stand: chosen at first, for that is what the reader looks for. */
function whereTheyStand(tree: readonly StackNode[], culprits: ReadonlySet<number>): string {
  const boxes = layOut(tree);
  const end = boxes.find((box) => box.ends.some((rank) => culprits.has(rank)));
  const own = boxes.findLast((box) => end?.trail.startsWith(box.trail) && isUser(box.node.frame));
  return (own ?? end)?.trail ?? "";
}

interface IcicleProps {
  nodes: readonly StackNode[];
  prefix: string;
  scene: Scene;
  chosen: string;
  total: number;
  onChoose: (trail: string) => void;
}

function Icicle({ nodes, prefix, scene, chosen, total, onChoose }: IcicleProps) {
  const { ref, element: room, width } = useWidth<HTMLDivElement>();
  const culprits = scene.culprits.value;
  const wide = Math.max(width, MIN_WIDTH, Math.min(branchesOf(nodes, culprits), MOST_WIDENED) * ROOM_OF_BRANCH);
  const boxes = layOut(nodes, culprits, READABLE / wide);
  const deepest = Math.max(...boxes.map((box) => box.depth));
  const trail = (box: Box): string => (prefix ? prefix + box.trail.split("\u0001").slice(2).map((key) => `\u0001${key}`).join("") : box.trail);
  useEffect(() => {
    const box = room.current?.querySelector<HTMLElement>(".box[aria-pressed=true]");
    if (box) room.current!.scrollLeft = box.offsetLeft + box.offsetWidth / 2 - room.current!.clientWidth / 2;
  }, [chosen, wide]);
  return (
    <div class="icicle-room" ref={ref}>
      <div class="icicle" role="group" aria-label="Merged stacks" style={{ height: `${(deepest + 1) * ROW}px`, minWidth: `${wide}px` }}>
        {boxes.map((box) => (
          <BoxButton key={box.trail} box={box} chosen={trail(box) === chosen} scene={scene} total={total} onChoose={() => onChoose(trail(box))} />
        ))}
      </div>
    </div>
  );
}

function BoxButton({ box, chosen, scene, total, onChoose }: { box: Box; chosen: boolean; scene: Scene; total: number; onChoose: () => void }) {
  const { frame, ranks: whose } = box.node;
  const blamed = whose.some((rank) => scene.culprits.value.has(rank)) && whose.length < total;
  const kind = frame.native ? "native" : isUser(frame) ? "user" : "library";
  return (
    <button
      type="button"
      class={`box ${kind} ${box.minority ? "minority" : ""} ${blamed ? "blamed" : ""}`}
      aria-pressed={chosen}
      title={`${frame.function}\n${frame.file}${frame.line ? `:${frame.line}` : ""}\n${ranks(whose)}`}
      style={{ left: `${box.x * 100}%`, width: `${box.width * 100}%`, top: `${box.depth * ROW}px` }}
      onClick={onChoose}
    >
      <span class="f">{frame.function}</span> <span class="p">{place(frame)}</span>
      <span class="offscreen"> {ranks(whose)}</span>
      {box.ends.length > 0 && <span class="r" aria-hidden="true">{ranges(box.ends)}</span>}
    </button>
  );
}

function Chosen({ node, inner, scene, onZoom }: { node: StackNode; inner: boolean; scene: Scene; onZoom: () => void }) {
  const { frame, ranks: whose } = node;
  const alone = whose.length === 1 ? scene.doc.value?.ranks.find((rank) => rank.rank === whose[0]) : undefined;
  return (
    <div class="chosen">
      <p>
        <code>{frame.function}</code> <span class="quiet">{frame.file}{frame.line ? `:${frame.line}` : ""}</span>{" "}
        {inner && <button type="button" onClick={onZoom}>Zoom to this frame</button>}
      </p>
      <QuotedAt frame={frame} doc={scene.doc.value} />
      <p>
        <strong>{ranks(whose)}</strong> {whose.length > 1 ? "are" : "is"} in it. A rank's own stacks:
      </p>
      <ul class="rank-links">
        {whose.slice(0, MOST_LINKS).map((rank) => (
          <li key={rank}>
            <a href={scene.link("ranks", rank)} class={scene.culprits.value.has(rank) ? "fault" : ""}>rank {rank}</a>
          </li>
        ))}
        {whose.length > MOST_LINKS && <li class="quiet">and {whose.length - MOST_LINKS} more</li>}
      </ul>
      {alone?.stacks.map((stack) => <Thread key={stack.thread_id} stack={stack} />)}
    </div>
  );
}
