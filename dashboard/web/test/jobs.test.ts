import { expect, it } from "vitest";
import type { JobState, JobSummary } from "../src/api";
import { JobsStore } from "../src/jobs";

function job(key: string, state: JobState, started_at = 0): JobSummary {
  return { key, state, started_at } as JobSummary;
}

it("shows what hangs first and what is over last", () => {
  const store = new JobsStore();
  store.merge([job("a", "finished", 9), job("b", "running", 1), job("c", "running", 2), job("d", "hung")]);
  expect(store.sorted.value.map((known) => known.key)).toEqual(["d", "c", "b", "a"]);
});

it("takes changes and deletions", () => {
  const store = new JobsStore();
  store.merge([job("a", "running"), job("b", "running")]);
  store.merge([job("a", "finished")]);
  store.remove("b");
  expect(store.sorted.value.map((known) => known.state)).toEqual(["finished"]);
});
