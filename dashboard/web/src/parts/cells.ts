// Paints the rank grid. A cell is a ready-made picture, and only cells that look different from before are painted.
// Its pixels are set, not drawn: drawing clears, blends and keeps a list of it, and of 10,000 a second that is too much.

import type { RankColumns } from "../api";
import type { GridLayout } from "../model/grid";
import { KINDS, kindOf, type KindName } from "../model/phases";
import { color, markPath, sharp } from "./paint";

export type Tint = "phase" | "lag";

export interface Look {
  tint: Tint;
  culprits: ReadonlySet<number>;
  homes: ReadonlyMap<number, string>; // of these the ranks with a process at fault: a broken ring
  cursor: number; // index of a column, -1 for none
}

const LAGS = [0, 1, 2, 5, 10, 50, Infinity];

/** 0 for a rank that is level with the fastest, up to 6 for one that is far behind. */
export function lagLevel(lag: number): number {
  return LAGS.findIndex((most) => lag <= most);
}

const KIND_NAMES = Object.keys(KINDS) as KindName[];
const GONE = 1;
const STOPPED = 2;

/** How large a number of so many digits stands in a cell, and how far from its left side: beside the mark of the phase, not in it. */
export function numberOf(cellHeight: number, digits: number): { size: number; left: number } {
  if (cellHeight >= 34) return { size: [15, 15, 15, 13, 11][digits] ?? 9, left: digits < 3 ? 8 : 4 };
  return { size: [11, 11, 11, 11, 9][digits] ?? 8, left: digits < 3 ? 4 : 3 };
}

export class CellPainter {
  private sprites = new Map<number, ImageData>();
  private painted = new Int16Array(0); // what stands in each cell, as a number; -1 for nothing
  private version = "";

  /** Paints what has changed and returns how many cells that were. */
  paint(canvas: HTMLCanvasElement, layout: GridLayout, columns: RankColumns, look: Look, theme: number): number {
    const margin = 4;
    const context = sharp(canvas, layout.width + 2 * margin, layout.height + 2 * margin, true);
    context.translate(margin, margin);
    const version = [theme, look.tint, layout.width, layout.height, layout.cells.length, [...look.culprits].join(), [...look.homes.keys()].join(), look.cursor].join("|");
    const whole = version !== this.version;
    if (whole) {
      this.version = version;
      this.painted = new Int16Array(layout.cells.length).fill(-1);
      this.sprites.clear();
      context.clearRect(-margin, -margin, canvas.width, canvas.height);
      this.labels(context, layout);
    }
    const kinds = kindsOf(columns, look.tint);
    const { cellWidth, cells } = layout;
    const numbered = cellWidth >= 30;
    const ratio = context.getTransform().a;
    let changed = 0;
    for (let index = 0; index < cells.length; index++) {
      const kind = kinds[index]!;
      if (this.painted[index] === kind) continue;
      this.painted[index] = kind;
      changed += 1;
      const { x, y } = cells[index]!;
      context.putImageData(this.sprite(kind, layout, look.tint), Math.round((margin + x) * ratio), Math.round((margin + y) * ratio));
      if (numbered) this.number(context, layout, index, columns.rank[index]!, look.tint === "lag" && kind >> 2 > 3);
    }
    if (changed) this.marks(context, layout, columns, look);
    return changed;
  }

  private sprite(kind: number, layout: GridLayout, tint: Tint): ImageData {
    let sprite = this.sprites.get(kind);
    if (!sprite) {
      const canvas = document.createElement("canvas");
      const context = sharp(canvas, layout.cellWidth, layout.cellHeight, true);
      if (tint === "lag") lagCell(context, layout, (kind >> 2) / (LAGS.length - 1));
      else phaseCell(context, layout, KIND_NAMES[kind >> 2]!);
      if (kind & 3) struck(context, layout, (kind & 3) === GONE);
      sprite = context.getImageData(0, 0, canvas.width, canvas.height);
      this.sprites.set(kind, sprite);
    }
    return sprite;
  }

  private number(context: CanvasRenderingContext2D, layout: GridLayout, index: number, number: number, onDark: boolean): void {
    const cell = layout.cells[index]!;
    const { size, left } = numberOf(layout.cellHeight, String(number).length);
    context.font = `600 ${size}px ${FONT}`;
    context.fillStyle = color(onDark ? "cell-ink-on-dark" : "cell-ink");
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText(String(number), cell.x + left, cell.y + layout.cellHeight / 2 + 0.5);
  }

  private labels(context: CanvasRenderingContext2D, layout: GridLayout): void {
    if (!layout.labels) return;
    context.font = `12px ${FONT}`;
    context.textBaseline = "alphabetic";
    context.textAlign = "left";
    context.fillStyle = color("ink-2");
    for (const block of layout.blocks) context.fillText(fitting(context, block.node, Math.max(block.width, 40)), block.x, block.y + 11);
  }

  /** Rings around who is at fault and around the cell under the cursor; in large grids a flag with the number. */
  private marks(context: CanvasRenderingContext2D, layout: GridLayout, columns: RankColumns, look: Look): void {
    columns.rank.forEach((rank, index) => {
      if (!look.culprits.has(rank)) return;
      const home = look.homes.get(rank);
      ring(context, layout, index, color("fault"), layout.cellWidth > 12 ? 3 : 2, home ? [4, 3] : []);
      if (layout.cellWidth < 30 && look.culprits.size <= 12) flag(context, layout, index, home ? `${home} of rank ${rank}` : `rank ${rank}`);
    });
    if (look.cursor >= 0) ring(context, layout, look.cursor, color("ink"), 2);
  }
}

/** What stands in each cell: phase or level of lag, times four, plus what is odd about the process. */
function kindsOf(columns: RankColumns, tint: Tint): Int16Array {
  const kinds = new Int16Array(columns.rank.length);
  const byPhase = columns.phases.map((phase) => KIND_NAMES.indexOf(kindOf(phase)));
  for (let index = 0; index < kinds.length; index++) {
    kinds[index] = (tint === "lag" ? lagLevel(columns.lag[index]!) : (byPhase[columns.phase[index]!] ?? 0)) << 2;
  }
  for (const [rank, state] of Object.entries(columns.process_state)) {
    const odd = state === "X" || state === "Z" ? GONE : state === "T" || state === "t" || state === "D" ? STOPPED : 0;
    const index = odd ? columns.rank.indexOf(Number(rank)) : -1;
    if (index >= 0) kinds[index]! |= odd;
  }
  return kinds;
}

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

function phaseCell(context: CanvasRenderingContext2D, layout: GridLayout, kind: keyof typeof KINDS): void {
  const { cellWidth: width, cellHeight: height } = layout;
  box(context, width, height, color(`phase-${kind}`));
  const size = height >= 34 ? 11 : height >= 24 ? 9 : width - 5;
  context.strokeStyle = color("cell-ink");
  context.lineWidth = height >= 24 ? 2 : width > 12 ? 1.6 : 1.1;
  context.lineCap = "round";
  const x = width >= 30 ? width - size - (height >= 34 ? 7 : 4) : (width - size) / 2;
  markPath(context, KINDS[kind].mark, x, (height - size) / 2, size);
}

function lagCell(context: CanvasRenderingContext2D, layout: GridLayout, level: number): void {
  const { cellWidth: width, cellHeight: height } = layout;
  box(context, width, height, color("lag-0"));
  if (level <= 0) return;
  context.globalAlpha = 0.35 + 0.65 * level;
  context.fillStyle = color("lag-1");
  const filled = Math.max(2, height * level);
  context.fillRect(0, height - filled, width, filled);
  context.globalAlpha = 1;
}

function box(context: CanvasRenderingContext2D, width: number, height: number, fill: string): void {
  context.fillStyle = fill;
  context.beginPath();
  context.roundRect(0, 0, width, height, width > 12 ? 3 : 1);
  context.fill();
}

function struck(context: CanvasRenderingContext2D, layout: GridLayout, gone: boolean): void {
  const { cellWidth: width, cellHeight: height } = layout;
  context.strokeStyle = color("fault");
  context.lineWidth = width > 12 ? 2.5 : 1.5;
  context.beginPath();
  if (gone) {
    context.moveTo(1, 1);
    context.lineTo(width - 1, height - 1);
    context.moveTo(width - 1, 1);
    context.lineTo(1, height - 1);
  } else {
    context.moveTo(1, height / 2);
    context.lineTo(width - 1, height / 2);
  }
  context.stroke();
}

function ring(context: CanvasRenderingContext2D, layout: GridLayout, index: number, stroke: string, line: number, dash: number[] = []): void {
  const cell = layout.cells[index];
  if (!cell) return;
  context.setLineDash(dash);
  context.strokeStyle = stroke;
  context.lineWidth = line;
  context.beginPath();
  context.roundRect(cell.x - 1, cell.y - 1, layout.cellWidth + 2, layout.cellHeight + 2, layout.cellWidth > 12 ? 4 : 2);
  context.stroke();
  context.setLineDash([]);
}

function flag(context: CanvasRenderingContext2D, layout: GridLayout, index: number, text: string): void {
  const cell = layout.cells[index]!;
  context.font = `700 12px ${FONT}`;
  const width = context.measureText(text).width + 12;
  const right = cell.x + layout.cellWidth + 6 + width <= layout.width;
  const x = right ? cell.x + layout.cellWidth + 5 : cell.x - 5 - width;
  const y = Math.min(Math.max(cell.y + layout.cellHeight / 2 - 10, 0), layout.height - 20);
  context.fillStyle = color("fault-fill");
  context.beginPath();
  context.roundRect(x, y, width, 20, 4);
  context.fill();
  context.fillStyle = color("on-fault");
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText(text, x + 6, y + 10.5);
}

function fitting(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  let kept = text;
  while (kept.length > 1 && context.measureText(`…${kept}`).width > room) kept = kept.slice(1);
  return `…${kept}`;
}
