// Colours of the style sheet for what is painted on a canvas, and canvases as sharp as the screen.

import { signal } from "@preact/signals";

/** Changes when the theme does: painters read it and paint again. */
export const theme = signal(0);

const cache = new Map<string, string>();
let probe: HTMLElement | null = null;

/** The colour that `--name` has at present. */
export function color(name: string): string {
  let found = cache.get(name);
  if (found === undefined) {
    probe ??= document.body.appendChild(Object.assign(document.createElement("i"), { className: "offscreen", ariaHidden: "true" }));
    probe.style.color = `var(--${name})`;
    found = getComputedStyle(probe).color;
    cache.set(name, found);
  }
  return found;
}

/** A job that only waits names a rank that has done no wrong: the colour of fault becomes that of waiting. */
export function setMood(status: string): void {
  const root = document.documentElement;
  if ((root.dataset["mood"] ?? "") === status) return;
  root.dataset["mood"] = status;
  themeChanged();
}

export function themeChanged(): void {
  cache.clear();
  theme.value += 1;
}

const known = new WeakSet<HTMLCanvasElement>();

/**
 * The canvas's context, sized in CSS pixels. Sizing clears it, so it happens only where the size differs.
 * `inPixels` is for a canvas whose pixels are read or set: the browser keeps those where that is quick.
 */
export function sharp(canvas: HTMLCanvasElement, width: number, height: number, inPixels = false): CanvasRenderingContext2D {
  if (!known.has(canvas)) {
    known.add(canvas);
    canvas.addEventListener("contextrestored", themeChanged); // a lost picture comes back empty: paint everything again
  }
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d", { willReadFrequently: inPixels })!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

export function markPath(context: CanvasRenderingContext2D, mark: string, x: number, y: number, size: number): void {
  const right = x + size;
  const low = y + size;
  const middle = size / 2;
  context.beginPath();
  switch (mark) {
    case "slash":
      context.moveTo(x, low);
      context.lineTo(right, y);
      break;
    case "backslash":
      context.moveTo(x, y);
      context.lineTo(right, low);
      break;
    case "plus":
      context.moveTo(x + middle, y);
      context.lineTo(x + middle, low);
      context.moveTo(x, y + middle);
      context.lineTo(right, y + middle);
      break;
    case "cross":
      context.moveTo(x, y);
      context.lineTo(right, low);
      context.moveTo(right, y);
      context.lineTo(x, low);
      break;
    case "bar":
      context.moveTo(x + middle, y);
      context.lineTo(x + middle, low);
      break;
    case "lines":
      context.moveTo(x, y + size * 0.25);
      context.lineTo(right, y + size * 0.25);
      context.moveTo(x, y + size * 0.75);
      context.lineTo(right, y + size * 0.75);
      break;
    case "low":
      context.moveTo(x, low - size * 0.1);
      context.lineTo(right, low - size * 0.1);
      break;
    case "ring":
      context.arc(x + middle, y + middle, middle * 0.8, 0, Math.PI * 2);
      break;
    default:
      context.arc(x + middle, y + middle, Math.max(0.7, size * 0.12), 0, Math.PI * 2);
  }
  context.stroke();
}
