// What the keys do, in a list that "?" opens, and a button in the header for those who do not know of "?".

import { useRef } from "preact/hooks";
import { SAYS } from "../keys";

export function KeysButton() {
  const dialog = useRef<HTMLDialogElement>(null);
  return (
    <>
      <button type="button" class="link" data-keys aria-haspopup="dialog" title="What the keys do (?)" onClick={() => dialog.current?.showModal()}>keys</button>
      <dialog
        ref={dialog}
        class="keys"
        aria-labelledby="keys-title"
        onClick={(event) => event.target === dialog.current && dialog.current?.close()} // beside the list
      >
        <div>
          <div class="head">
            <h2 id="keys-title">Keys</h2>
            <button type="button" onClick={() => dialog.current?.close()}>Close</button>
          </div>
          <dl>
            {SAYS.map(([keys, says]) => (
              <div key={keys.join()}>
                <dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt>
                <dd>{says}</dd>
              </div>
            ))}
          </dl>
        </div>
      </dialog>
    </>
  );
}
