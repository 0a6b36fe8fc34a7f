// What people say of incidents of one cause and line: in the list, and on the page of an incident.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, type IncidentReview, type ReviewState } from "../api";
import { When } from "../parts/bits";

/** What a person says of a group, here and on the page of an incident. */
export function Review({ group, review }: { group: string; review: IncidentReview }) {
  const state = useSignal(review);
  const note = useSignal(review.note);
  const error = useSignal("");
  useEffect(() => {
    state.value = review;
    note.value = review.note;
  }, [review.state, review.note, review.at]);
  const say = (wanted: ReviewState): void => {
    ask<IncidentReview>(`/incident-groups/${group}/review`, "PUT", { state: wanted, note: note.value }).then(
      (answer) => {
        state.value = answer;
        error.value = "";
      },
      (problem: Error) => (error.value = problem.message),
    );
  };
  const now = state.value;
  return (
    <form class="review" onSubmit={(event) => event.preventDefault()}>
      <span class={`tag first review-${now.state}`}>{now.state}</span>
      {now.at !== null && <span class="quiet">since <When at={now.at} brief /></span>}
      <label>
        <span class="offscreen">Note</span>
        <input value={note.value} maxLength={2000} placeholder="Note" onInput={(event) => (note.value = event.currentTarget.value)} />
      </label>
      {now.state !== "acknowledged" && <button type="button" onClick={() => say("acknowledged")}>Acknowledge</button>}
      {now.state !== "resolved" && <button type="button" onClick={() => say("resolved")}>Resolve</button>}
      {now.state !== "open" && <button type="button" onClick={() => say("open")}>Reopen</button>}
      {note.value !== now.note && now.state !== "open" && <button type="button" onClick={() => say(now.state)}>Save the note</button>}
      <span role="status" class="missing">{error.value}</span>
    </form>
  );
}
