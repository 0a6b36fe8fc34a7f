// What the three lists share: the tabs between them, filters that stand in the address, pages, and asking for them.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { ask } from "../api";
import { query, refine } from "../router";
import { plural } from "../words";

export const PAGE = 50;

const TABS = [
  ["jobs", "/", "Active"],
  ["incidents", "/incidents", "Incidents"],
  ["history", "/history", "History"],
] as const;

export function Tabs({ of }: { of: (typeof TABS)[number][0] }) {
  return (
    <nav class="views lists" aria-label="Lists">
      <ul>
        {TABS.map(([name, address, says]) => (
          <li key={name}>
            <a href={address} aria-current={name === of ? "page" : undefined}>{says}</a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** The value of a filter, from the address. */
export function filter(name: string): string {
  return new URLSearchParams(query.value).get(name) ?? "";
}

export function Search({ label, hint }: { label: string; hint: string }) {
  const typed = useSignal(filter("search"));
  useEffect(() => {
    if (typed.value === filter("search")) return;
    const wait = setTimeout(() => refine({ search: typed.value.trim(), page: "" }), 200);
    return () => clearTimeout(wait);
  }, [typed.value]);
  return (
    <label class="search">
      <span class="offscreen">{label}</span>
      <input type="search" placeholder={hint} value={typed.value} onInput={(event) => (typed.value = event.currentTarget.value)} />
    </label>
  );
}

export function Choice({ name, label, options }: { name: string; label: string; options: [string, string][] }) {
  return (
    <label class="filter">
      {label}{" "}
      <select value={filter(name)} onChange={(event) => refine({ [name]: event.currentTarget.value, page: "" })}>
        {options.map(([value, says]) => <option key={value} value={value}>{says}</option>)}
      </select>
    </label>
  );
}

export const SINCE: [string, string][] = [
  ["", "any time"],
  ["3600", "the last hour"],
  ["86400", "the last day"],
  ["604800", "the last week"],
  ["2592000", "the last 30 days"],
];

/** A page of a list from the API; asked again when a filter changes, and when `again` does. */
export function useList<T>(path: string, names: string[], again: unknown): { found: T | null; error: string } {
  const found = useSignal<T | null>(null);
  const error = useSignal("");
  const page = Number(filter("page")) || 0;
  const wanted = new URLSearchParams({ limit: String(PAGE), offset: String(page * PAGE) });
  for (const name of names) if (filter(name)) wanted.set(name, name === "since" ? sinceNow(filter(name)) : filter(name));
  const address = `${path}?${wanted}`;
  useEffect(() => {
    let current = true;
    ask<T>(address).then(
      (answer) => {
        if (!current) return;
        found.value = answer;
        error.value = "";
      },
      (problem: Error) => current && (error.value = problem.message),
    );
    return () => {
      current = false;
    };
  }, [address, again]);
  return { found: found.value, error: error.value };
}

/** The beginning of a span that ends now, to the minute: else every look would be another address. */
function sinceNow(seconds: string): string {
  return String(Math.floor((Date.now() / 1000 - Number(seconds)) / 60) * 60);
}

export function Pages({ total, noun, several }: { total: number; noun: string; several?: string }) {
  const page = Number(filter("page")) || 0;
  const last = Math.max(0, Math.ceil(total / PAGE) - 1);
  const turn = (to: number): void => refine({ page: to ? String(to) : "" });
  return (
    <p class="pages">
      {last > 0 && <button type="button" disabled={page <= 0} onClick={() => turn(page - 1)}>Newer</button>}
      <span role="status">
        {plural(total, noun, several)}
        {last > 0 && `, page ${page + 1} of ${last + 1}`}
      </span>
      {last > 0 && <button type="button" disabled={page >= last} onClick={() => turn(page + 1)}>Older</button>}
    </p>
  );
}

export function ListPage({ title, tab, filters, children, busy }: { title: string; tab: (typeof TABS)[number][0]; filters: ComponentChildren; children: ComponentChildren; busy: boolean }) {
  return (
    <main class="page" id="main" aria-busy={busy}>
      <header class="title">
        <h1>{title}</h1>
      </header>
      <Tabs of={tab} />
      {filters && <div class="filters">{filters}</div>}
      {children}
    </main>
  );
}
