// How old the evidence is that a view shows, and a button to take it anew.

import { When } from "../parts/bits";
import type { Scene } from "../scene";

export function EvidenceNote({ scene }: { scene: Scene }) {
  const doc = scene.doc.value;
  if (!scene.live) return null;
  return (
    <span class="evidence-note">
      {doc ? (
        <>
          Evidence of <When at={doc.taken_at || doc.updated_at} short />
        </>
      ) : (
        "No evidence has been taken yet."
      )}{" "}
      {scene.capture && (
        <button type="button" onClick={() => void scene.capture!()}>
          Capture now
        </button>
      )}
    </span>
  );
}
