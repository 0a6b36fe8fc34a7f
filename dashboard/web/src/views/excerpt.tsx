// A line of the user's code with its surroundings.

import { useEffect, useRef } from "preact/hooks";
import type { Excerpt, Frame, Incident } from "../records";
import { fromDisk } from "../router";
import { baseName } from "../words";

export function Quoted({ excerpt }: { excerpt: Excerpt }) {
  const list = useRef<HTMLOListElement>(null);
  const id = (number: number): string => `${encodeURIComponent(baseName(excerpt.file))}-L${number}`;
  const named = useRef(fromDisk ? "" : location.hash.slice(1)).current;
  // The line was not there yet when the browser looked for what the address names.
  useEffect(() => list.current?.querySelector(".named")?.scrollIntoView({ block: "center" }), []);
  return (
    <>
      <ol class="excerpt" ref={list} aria-label={`Lines ${excerpt.first} to ${excerpt.first + excerpt.lines.length - 1}`}>
        {dedented(excerpt.lines).map((text, index) => {
          const number = excerpt.first + index;
          const here = number === excerpt.line;
          return (
            <li key={number} id={fromDisk ? undefined : id(number)} class={`${here ? "here" : ""} ${named === id(number) ? "named" : ""}`} aria-current={here ? "true" : undefined}>
              {fromDisk ? <span class="line-number">{number}</span> : <a class="line-number" href={`#${id(number)}`} aria-label={`Link to line ${number}`}>{number}</a>}
              <code>{text}</code>
            </li>
          );
        })}
      </ol>
      {excerpt.changed && <p class="remark">This file was written after the rank had started: other lines may be running.</p>}
    </>
  );
}

/** The line of a frame, where a node has read it; nothing where nodes have different files under one name. */
export function QuotedAt({ frame, doc }: { frame: Frame | null; doc: Incident | null }) {
  const found = (doc?.excerpts ?? []).filter((excerpt) => excerpt.file === frame?.file && excerpt.line === frame.line);
  return found.length === 1 ? <Quoted excerpt={found[0]!} /> : null;
}

/** The lines without the indentation that all of them share. */
export function dedented(lines: readonly string[]): string[] {
  const indents = lines.filter((line) => line.trim()).map((line) => /^[ \t]*/.exec(line)![0]);
  const shared = indents.reduce((a, b) => a.slice(0, [...a].findIndex((c, at) => c !== b[at]) >>> 0), indents[0] ?? "");
  return lines.map((line) => (line.startsWith(shared) ? line.slice(shared.length) : line.trimStart()));
}
