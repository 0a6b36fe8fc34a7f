// The frame that job, incident and capture share: heading, verdict, the list of views, the view.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { View } from "../router";
import type { Scene } from "../scene";
import { CollectivesView } from "./collectives";
import { DiffView } from "./diff";
import { EvidenceView } from "./evidence";
import { GpusView } from "./gpus";
import { HealthView } from "./health";
import { LoaderView } from "./loader";
import { Overview } from "./overview";
import { RankView } from "./rank";
import { StacksView } from "./stacks";
import { StepsView } from "./steps";
import { TimelineView } from "./timeline";

const NAMES: Record<Exclude<View, "ranks">, string> = {
  overview: "Overview",
  diff: "Diff",
  collectives: "Collectives",
  steps: "Steps",
  health: "Health",
  timeline: "Timeline",
  stacks: "Stacks",
  gpus: "GPUs",
  loader: "Loader",
  evidence: "Evidence",
};

export function Views({ scene, view }: { scene: Scene; view: View }) {
  const list = useRef<HTMLElement>(null);
  useEffect(() => {
    const here = list.current?.querySelector<HTMLElement>("[aria-current]");
    if (here) list.current!.scrollLeft = here.offsetLeft - list.current!.clientWidth / 2; // narrow screens show some of them
  }, [view]);
  return (
    <nav class="views" aria-label="Views" ref={list}>
      <ul>
        {Object.entries(NAMES).map(([name, says]) => (
          <li key={name}>
            <a href={scene.link(name as View)} aria-current={view === name || (view === "ranks" && name === "overview") ? "page" : undefined}>{says}</a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

/** `incidents` stand in the overview, before the nodes, of which there may be many. */
export function Body({ scene, view, rank, job, incidents }: { scene: Scene; view: View; rank: number | null; job: string | null; incidents?: ComponentChildren }) {
  switch (view) {
    case "ranks":
      return rank === null ? <Overview scene={scene} incidents={incidents} /> : <RankView scene={scene} rank={rank} job={job} />;
    case "diff":
      return <DiffView scene={scene} />;
    case "collectives":
      return <CollectivesView scene={scene} />;
    case "steps":
      return <StepsView scene={scene} />;
    case "health":
      return <HealthView scene={scene} />;
    case "timeline":
      return <TimelineView scene={scene} />;
    case "stacks":
      return <StacksView scene={scene} />;
    case "gpus":
      return <GpusView scene={scene} />;
    case "loader":
      return <LoaderView scene={scene} />;
    case "evidence":
      return <EvidenceView scene={scene} />;
    default:
      return <Overview scene={scene} incidents={incidents} />;
  }
}

export function Lost({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <main class="page" id="main">
      <header class="title"><h1>{title}</h1></header>
      <p>{children}</p>
      <p><a href="/">All jobs</a></p>
    </main>
  );
}
