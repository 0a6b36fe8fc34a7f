import { expect, it } from "vitest";
import { alike, common, span } from "../src/model/alike";

it("puts rows of equal keys together, in the order of their first", () => {
  expect(alike([3, 1, 4, 13, 11], (number) => String(number % 10))).toEqual([[3, 13], [1, 11], [4]]);
});

it("says what all have, and from where to where their values go", () => {
  expect(common([{ name: "H200" }, { name: "H200" }], (gpu) => gpu.name)).toBe("H200");
  expect(common([1, 2], (value) => value)).toBeNull();
  expect(span([41, null, 44], (value) => `${value} °C`)).toBe("41 °C to 44 °C");
  expect(span([41, 41], (value) => `${value} °C`)).toBe("41 °C");
  expect(span([null], String)).toBe("");
});
