import { expect, test } from "vitest";
import type { Pace, Straggler } from "../src/records";
import { alone, path, says, whoIs } from "../src/views/health";

const straggler: Straggler = { ranks: [2], host: "", phase: "forward", lag_s: 0.09, typical_s: 0.06, trend: "steady" };

test("a slow rank in a sentence", () => {
  expect(whoIs(straggler)).toBe("Rank 2");
  expect(says(straggler)).toBe("adds 90 ms to each step, most of it before the end of its forward; a typical rank needs 60 ms until there.");
  expect(says({ ...straggler, phase: "data", trend: "growing" })).toContain("waiting for its loader; a typical rank needs 60 ms until there; the lag is growing.");
});

test("a slow node is named with its ranks", () => {
  expect(whoIs({ ...straggler, ranks: [4, 5, 6, 7], host: "node-b" })).toBe("node-b (ranks 4-7)");
});

test("a sparkline stays within its box, and one of one window is a point", () => {
  const numbers = path([0, 0.5, 1, 7], 1).match(/[\d.]+/g)!.map(Number);
  expect(Math.max(...numbers)).toBeLessThanOrEqual(88);
  expect(numbers.filter((_, index) => index % 2).every((y) => y >= 0 && y <= 20)).toBe(true);
  expect(path([1], 1)).toBe("M1.0 1.0");
  expect(path([], 1)).toBe("");
});

test("what a rank takes by itself is data and forward", () => {
  const row: Pace = { ranks: "0", host: "a", lag_s: 0, trend: "steady", data_share: 0, data_s: [1, 2], forward_s: [3, 4], wait_s: [9, 9] };
  expect(alone(row)).toEqual([4, 6]);
});
