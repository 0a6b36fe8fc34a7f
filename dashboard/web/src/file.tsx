// The page of one incident as a file: the incident stands in the file itself, and nothing else is loaded.

import { render } from "preact";
import { KeysButton } from "./parts/keys_list";
import { ThemeButton, startTheme } from "./parts/theme";
import type { Incident } from "./records";
import { listenToKeys } from "./keys";
import { here, listen } from "./router";
import { IncidentPage } from "./views/incident";
import { parseClean } from "./words";
import "./style/page.css";

function File({ incident }: { incident: Incident }) {
  const { view, rank } = here.value;
  return (
    <>
      <header class="top">
        <span class="brand">hangwatch</span>
        <span class="spring" />
        <KeysButton />
        <ThemeButton />
      </header>
      <IncidentPage incident={incident} page="incident" id="" view={view} rank={rank} job={null} />
    </>
  );
}

startTheme();
listen();
listenToKeys();
const incident = parseClean<Incident>(document.getElementById("incident")!.textContent!);
render(<File incident={incident} />, document.getElementById("app")!);
