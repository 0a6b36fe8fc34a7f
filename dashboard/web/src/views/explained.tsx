// A cause, explained where it stands: what it is, its usual fix, and what it is taken for. Needs no other site.

import { EXPLANATIONS } from "../explanations";
import { Prose } from "../parts/bits";
import { title } from "../words";

/** The cause's title, which opens the catalogue's text; and its id for those who search for it. `fix` stands beside it. */
export function Explained({ id, docs = "", fix = "" }: { id: string; docs?: string; fix?: string }) {
  const known = Object.hasOwn(EXPLANATIONS, id) ? EXPLANATIONS[id] : undefined; // a node may name a cause of its own
  const name = title(id);
  const inside = <>{name} {name !== id && <code class="quiet">{id}</code>}</>;
  if (!known) return <span>{inside}</span>;
  return (
    <details class="explained">
      <summary title="What this cause is">{inside}</summary>
      <div>
        <p><Prose text={known.says} /></p>
        {known.fix !== fix && <p><b>Usual fix:</b> <Prose text={known.fix} /></p>}
        {known.alike.length > 0 && (
          <>
            <p><b>Often taken for:</b></p>
            <ul>{known.alike.map((other) => <li key={other}>{title(other)} <code class="quiet">{other}</code>: <Prose text={EXPLANATIONS[other]?.says ?? ""} /></li>)}</ul>
          </>
        )}
        {/^https:\/\//.test(docs) && <p><a href={docs} rel="noreferrer noopener" target="_blank">Documentation of {id}</a></p>}
      </div>
    </details>
  );
}
