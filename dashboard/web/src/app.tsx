// The page of the dashboard.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { KeysButton } from "./parts/keys_list";
import { ThemeButton } from "./parts/theme";
import { here } from "./router";
import { session, signedIn, signOut } from "./session";
import { health, heardAt, type Health } from "./stream";
import { FetchedPage } from "./views/incident";
import { JobPage } from "./views/job";
import { HistoryPage } from "./views/history";
import { IncidentsPage } from "./views/incidents";
import { JobsPage } from "./views/jobs";
import { Lost } from "./views/evidence_page";
import { SignIn } from "./views/sign_in";
import { duration, timeOfDay } from "./words";

export function App() {
  useEffect(() => void signedIn(), []);
  const place = here.value;
  const locked = session.value?.required && !session.value.signed_in;
  const streaming = place.page === "jobs" || place.page === "job" || place.page === "incidents";
  return (
    <>
      <a class="skip" href="#main">Skip to the content</a>
      <header class="top">
        <a class="brand" href="/">hangwatch</a>
        {streaming && !locked && <Line />}
        <span class="spring" />
        <a class="api" href="/api/v1/docs" title="The dashboard's API, for programs">API</a>
        <KeysButton />
        <ThemeButton />
        {session.value?.required && session.value.signed_in && <button type="button" class="link" onClick={() => void signOut()}>Sign out</button>}
      </header>
      {streaming && !locked && <Stale />}
      {locked ? <SignIn /> : <CurrentPage />}
    </>
  );
}

function CurrentPage() {
  const place = here.value;
  switch (place.page) {
    case "jobs":
      return <JobsPage />;
    case "incidents":
      return <IncidentsPage />;
    case "history":
      return <HistoryPage />;
    case "job":
      return <JobPage key={place.id} {...place} />;
    case "incident":
    case "capture":
      return <FetchedPage key={place.page + place.id} {...place} page={place.page} />;
    default:
      return <Lost title="Nothing here">There is nothing at this address.</Lost>;
  }
}

const SAYS: Record<Health, string> = { connecting: "connecting …", live: "live", stale: "stale", lost: "not connected" };

function Line() {
  return <span class={`line ${health.value}`}><span class="dot" aria-hidden="true" /> {SAYS[health.value]}</span>;
}

/** Says that what is shown is old, for as long as it is. */
function Stale() {
  const now = useSignal(Date.now() / 1000);
  useEffect(() => {
    const ticking = setInterval(() => (now.value = Date.now() / 1000), 1000);
    return () => clearInterval(ticking);
  }, []);
  return (
    <div role="status" class={says(now.value) && "stale"}>
      {says(now.value)}
    </div>
  );
}

function says(now: number): string {
  if (health.value !== "stale" && health.value !== "lost") return "";
  if (heardAt.value === 0) return "The dashboard does not answer. Trying again by itself.";
  return `Nothing has been heard from the dashboard since ${timeOfDay(heardAt.value)} (${duration(Math.max(0, now - heardAt.value))}). What you see is from then; reconnecting by itself.`;
}
