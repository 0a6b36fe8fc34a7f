import { expect, it } from "vitest";
import { better } from "../src/live";
import { incident, node } from "./make";

it("never shows nothing for something", () => {
  const full = incident([], { taken_at: 10, stack_tree: [node("main", [0])] });
  const empty = incident([], { taken_at: 20 });
  expect(better(empty, full)).toBe(false);
  expect(better(full, empty)).toBe(true);
  expect(better({ ...full, taken_at: 9 }, full)).toBe(false);
  expect(better({ ...full, taken_at: 11 }, full)).toBe(true);
  expect(better(empty, null)).toBe(true);
});
