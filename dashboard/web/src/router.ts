// Where the reader is. In the dashboard that is the path, in a file from disk what follows the #.

import { computed, signal } from "@preact/signals";

export const VIEWS = ["overview", "diff", "collectives", "steps", "health", "timeline", "stacks", "gpus", "loader", "evidence"] as const;
export type View = (typeof VIEWS)[number] | "ranks";

export interface Place {
  page: "jobs" | "incidents" | "history" | "job" | "incident" | "capture" | "lost";
  id: string;
  view: View;
  rank: number | null;
}

const PAGES: Record<string, Place["page"]> = { jobs: "job", incidents: "incident", captures: "capture" };
const LISTS: Record<string, Place["page"]> = { jobs: "jobs", incidents: "incidents", history: "history" };
const FOLDERS = { job: "jobs", incident: "incidents", capture: "captures" } as const;

/** "/jobs/KEY/ranks/3" as a place; `page` "lost" for what is none. */
export function read(path: string): Place {
  const parts = path.split("/").filter(Boolean).map(decoded);
  if (parts.length < 2) return { page: LISTS[parts[0] ?? "jobs"] ?? "lost", id: "", view: "overview", rank: null };
  const page = PAGES[parts[0]!];
  if (!page) return { page: "lost", id: "", view: "overview", rank: null };
  return { page, id: parts[1]!, ...readView(parts.slice(2)) };
}

/** "stacks" or "ranks/3": the part of a path that every page of evidence has. */
export function readView(parts: string[]): { view: View; rank: number | null } {
  const [view = "overview", rank] = parts;
  if (view === "ranks" && rank !== undefined && /^\d{1,7}$/.test(rank)) return { view: "ranks", rank: Number(rank) };
  return { view: (VIEWS as readonly string[]).includes(view) ? (view as View) : "overview", rank: null };
}

export function write(place: Omit<Place, "page"> & { page: "job" | "incident" | "capture" }): string {
  return `/${FOLDERS[place.page]}/${encodeURIComponent(place.id)}${writeView(place.view, place.rank)}`;
}

export function writeView(view: View, rank: number | null = null): string {
  if (view === "ranks" && rank !== null) return `/ranks/${rank}`;
  return view === "overview" ? "" : `/${view}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const fromDisk = typeof location !== "undefined" && document.getElementById("incident") !== null;
const path = signal(typeof location === "undefined" ? "/" : current());

/** What follows the "?": the filters of a list, so that a filtered list has an address. */
export const query = signal(typeof location === "undefined" ? "" : location.search);

/** Changes filters in the address without a step in the browser's history. */
export function refine(changes: Record<string, string>): void {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(changes)) value ? next.set(name, value) : next.delete(name);
  const text = next.toString();
  query.value = text && `?${text}`;
  history.replaceState(null, "", location.pathname + query.value);
}

function current(): string {
  return fromDisk ? location.hash.slice(1) : location.pathname;
}

export const here = computed<Place>(() =>
  fromDisk ? { page: "incident", id: "", ...readView(path.value.split("/").filter(Boolean)) } : read(path.value),
);

/** The address of a place within the page that is open: what `href` gets. */
export function address(target: string): string {
  return fromDisk ? `#${target || "/"}` : target;
}

export function go(target: string): void {
  if (fromDisk) {
    location.hash = target || "/";
  } else if (target !== location.pathname + location.search) {
    history.pushState(null, "", target);
    path.value = current();
    query.value = location.search;
  }
  scrollTo({ top: 0 });
}

/** Follows the browser's own going back and forth, and clicks on links within the page. */
export function listen(): void {
  addEventListener(fromDisk ? "hashchange" : "popstate", () => {
    path.value = current();
    query.value = location.search;
  });
  if (fromDisk) return;
  addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(link instanceof HTMLAnchorElement) || !plain(event) || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || link.pathname.startsWith("/api/") || link.hash) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

function plain(event: MouseEvent): boolean {
  return event.button === 0 && !event.defaultPrevented && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
}
