import { describe, expect, it } from "vitest";
import { PHASES } from "../src/model/phases";
import { appended, curvesOfHistory, curvesOfIncident, lanesOfHistory, lanesOfIncident } from "../src/model/tracks";
import { columns, history, incident, report, step } from "./make";

const BACKWARD = PHASES.indexOf("backward");
const DATA = PHASES.indexOf("data");

function reading(steps: [number, number][], phaseAt: number) {
  return { steps: steps.map(([index, at]) => step(index, at)), phase_at: phaseAt } as never;
}

describe("history", () => {
  const moments = history({
    at: [10, 11, 12, 13],
    step: [[1, 1], [2, 2], [2, 2], [2, 2]],
    phase: [[DATA, DATA], [BACKWARD, DATA], [BACKWARD, DATA], [BACKWARD, DATA]],
    step_s: [[1, 0], [1, 1], [1, 1], [1, 1]],
    data_s: [[0, 0], [0, 0], [0, 0], [0, 0]],
    still_s: [[0, 0], [0, 0.5], [1, 0.5], [2.5, 0.5]],
  });
  it("becomes lanes in which equal phases are one segment", () => {
    const [first, second] = lanesOfHistory(moments);
    expect(second!.segments).toEqual([{ from: 10, to: 13, phase: "data", step: 2, still: false }]);
    expect(first!.segments.map((segment) => [segment.from, segment.phase, segment.still])).toEqual([[10, "data", false], [11, "backward", true]]);
  });
  it("shows the step that a rank hangs in as it grows", () => {
    const hung = history({ ...moments, still_s: [[0, 0], [1, 0.5], [2.5, 0.5], [40, 0.5]] });
    expect(curvesOfHistory(hung).stepTime).toEqual([[1, 1, 2.5, 40], [null, 1, 1, 1]]);
  });
  it("becomes curves", () => {
    const curves = curvesOfHistory(history({ ...moments, step: [[3, 1], [3, 2], [3, 3], [4, 3]] }));
    expect(curves.lag, "a step that the fastest has just begun is none that others are behind").toEqual([[null, 0, 0, 0], [null, 1, 0, 0]]);
    expect(curves.stepTime[1]).toEqual([null, 1, 1, 1]);
  });
  it("grows by the moment, and forgets", () => {
    const once = appended(history({ rank: [1, 9] }), columns(3, { at: 100 }));
    expect(once).toMatchObject({ at: [100], step: [[5, -1]] });
    expect(appended(once, columns(3, { at: 100 }))).toBe(once);
    expect(appended(once, columns(3, { at: 500 })).at).toEqual([500]);
  });
});

describe("an incident's ledgers", () => {
  const ranks = [report(0, { reading: reading([[5, 10], [6, 11], [7, 12]], 12.5) }), report(1, { reading: reading([[5, 10], [6, 11.5]], 13), phase: "between" })];
  it("become lanes that end in what holds", () => {
    const [, second] = lanesOfIncident(incident(ranks, { taken_at: 20 }));
    expect(second!.segments.map((segment) => [segment.from, segment.to, segment.phase, segment.still])).toEqual([[10, 11.5, "step", false], [11.5, 13, "step", false], [13, 20, "between", true]]);
  });
  it("become curves of lag and step time", () => {
    const curves = curvesOfIncident(incident(ranks, { taken_at: 20 }));
    expect(curves.at).toEqual([10, 11, 11.5, 12, 20]);
    expect(curves.lag[1], "half a second later is not behind").toEqual([0, 0, 0, 1, 1]);
    expect(curves.stepTime[0], "the step that it hangs in goes on").toEqual([null, 1, 1, 1, 3]);
  });
  it("give way to the phases that the watchdog remembered", () => {
    const phases = [{ at: 8, phase: "data" as const, step: 5 }, { at: 10, phase: "backward" as const, step: 6 }];
    const seen = (more: object) => lanesOfIncident(incident([{ ...ranks[0]!, phases, ...more }], { taken_at: 20 }))[0]!.segments;
    expect(seen({ still_s: 7 }).map((segment) => [segment.from, segment.to, segment.phase, segment.still])).toEqual([[8, 10, "data", false], [10, 13, "backward", false], [13, 20, "backward", true]]);
    expect(seen({ still_s: 15 }).at(-1)).toEqual({ from: 10, to: 20, phase: "backward", step: 6, still: true });
    expect(seen({ still_s: 0.2 }).at(-1)).toEqual({ from: 10, to: 20, phase: "backward", step: 6, still: false });
  });
  it("may be missing", () => {
    expect(lanesOfIncident(incident([report(0)]))[0]!.segments).toHaveLength(1);
  });
});
