// Small things that several views use.

import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Frame } from "../records";
import { useWidth } from "./width";
import { briefMoment, moment, place, saidMoment, timeOfDay } from "../words";

/** A moment in the reader's zone; the whole of it on hover. `short` is the time of day, `brief` the day too unless it is today, `said` ends a sentence. */
export function When({ at, short = false, brief = false, said = false }: { at: number; short?: boolean; brief?: boolean; said?: boolean }) {
  if (!at) return <span>not known</span>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={moment(at)}>
      {said ? saidMoment(at) : short ? timeOfDay(at) : brief ? briefMoment(at) : moment(at)}
    </time>
  );
}

/** train.py:88 in main, with the whole path on hover. */
export function Site({ frame, bare = false }: { frame: Frame | null; bare?: boolean }) {
  if (!frame) return null;
  return (
    <span class="site" title={frame.file + (frame.line ? `:${frame.line}` : "")}>
      <code>{place(frame)}</code>
      {!bare && frame.function && <span class="quiet"> in {frame.function}</span>}
    </span>
  );
}

/** A sentence in which `backticks` mark code. */
export function Prose({ text }: { text: string }) {
  return <>{text.split(/`([^`]+)`/).map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}</>;
}

const LONG = 320;

/** Text of which the first lines are shown where it is long, the rest when it is asked for. */
export function Clamped({ children, most = LONG }: { children: string; most?: number }) {
  const open = useSignal(false);
  if (children.length <= most * 1.25) return <p class="clamped"><Prose text={children} /></p>;
  return (
    <p class="clamped">
      <Prose text={open.value ? children : `${children.slice(0, most).trimEnd()} …`} />{" "}
      <button type="button" class="link" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>{open.value ? "show less" : "show more"}</button>
    </p>
  );
}

const LONG_NAME = 80;

/** The name of a job in a heading: the beginning where it is very long, and all of it when it is asked for. */
export function Name({ text, href }: { text: string; href?: string | undefined }) {
  const open = useSignal(false);
  const long = text.length > LONG_NAME;
  const shown = long && !open.value ? `${text.slice(0, LONG_NAME - 16)}…` : text;
  return (
    <>
      {href ? <a href={href}>{shown}</a> : shown}
      {long && <>{" "}<button type="button" class="link" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>{open.value ? "show less" : "show more"}</button></>}
    </>
  );
}

/** Text that the style cuts off after its line or lines; a button shows the whole where something is cut off. `class` does the cutting. */
export function Cut({ text, title = text, class: name, code = false }: { text: string; title?: string; class: string; code?: boolean }) {
  const open = useSignal(false);
  const cut = useSignal(false);
  const { ref, element, width } = useWidth<HTMLElement>();
  useLayoutEffect(() => {
    const shown = element.current;
    if (shown && !open.value) cut.value = shown.scrollWidth > shown.clientWidth + 1 || shown.scrollHeight > shown.clientHeight + 1;
  }, [text, width, open.value]);
  const Tag = code ? "code" : "span";
  return (
    <>
      <Tag ref={ref} class={`${name} ${open.value ? "whole" : ""}`} title={title}>{text}</Tag>
      {cut.value && <>{" "}<button type="button" class="link cut" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>{open.value ? "show less" : "show more"}</button></>}
    </>
  );
}

/** A part of a view with its heading. */
export function Part({ title, note, children, id }: { title: string; note?: ComponentChildren; children: ComponentChildren; id?: string }) {
  const heading = id ?? title.toLowerCase().replaceAll(/\W+/g, "-");
  return (
    <section class="part" aria-labelledby={heading}>
      <header>
        <h2 id={heading}>{title}</h2>
        {note && <div class="note">{note}</div>}
      </header>
      {children}
    </section>
  );
}

const WIDE = /matrix|split/; // what is compared across must stay side by side: these scroll

/** A table. Where the screen is narrow its rows become cards, in which each value has its column's name before it. */
export function Table({ label, children, class: name = "" }: { label: string; children: ComponentChildren; class?: string }) {
  const table = useRef<HTMLTableElement>(null);
  const cards = !WIDE.test(name);
  useLayoutEffect(() => {
    if (!cards || !table.current) return;
    const names = [...table.current.querySelectorAll("thead th")].map((cell) => cell.textContent ?? "");
    for (const body of table.current.tBodies) nameCells(body, names);
  });
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table ref={table} class={`${name} ${cards ? "cards" : ""}`}>{children}</table>
    </div>
  );
}

/** Writes the name of its column onto each cell; a cell over several rows takes its column from those below it. */
function nameCells(body: HTMLTableSectionElement, names: string[]): void {
  const taken: number[] = names.map(() => 0); // rows for which a cell further up still stands in the column
  for (const row of body.rows) {
    const free = taken.flatMap((rows, column) => (rows ? [] : [column]));
    taken.forEach((rows, column) => (taken[column] = Math.max(0, rows - 1)));
    for (const [index, cell] of [...row.cells].entries()) {
      const column = free[index] ?? index;
      cell.dataset["label"] = names[column] ?? "";
      const text = cell.textContent?.trim() ?? "";
      cell.toggleAttribute("data-none", (text === "–" || text === "") && !cell.querySelector("path:not([d='']), .stacked"));
      taken[column] = cell.rowSpan - 1;
    }
  }
}

export function Nothing({ children }: { children: ComponentChildren }) {
  return <p class="nothing">{children}</p>;
}

/** A share as a bar and in numbers. */
export function Meter({ value, most, text, tone = "" }: { value: number; most: number; text: string; tone?: string }) {
  const percent = most > 0 ? Math.min(100, (100 * value) / most) : 0;
  return (
    <span class={`meter ${tone}`}>
      <span class="bar" aria-hidden="true">
        <span style={{ width: `${percent}%` }} />
      </span>
      {text}
    </span>
  );
}
