import { describe, expect, it } from "vitest";
import { moved, resolved, zoomed } from "../src/model/span";

const whole = { from: 100, to: 400 };

describe("the time range of the charts", () => {
  it("is everything, the last seconds, or moments", () => {
    expect(resolved(null, whole)).toEqual(whole);
    expect(resolved({ last: 60 }, whole)).toEqual({ from: 340, to: 400 });
    expect(resolved({ last: 60 }, { from: 100, to: 460 })).toEqual({ from: 400, to: 460 });
    expect(resolved({ last: 900 }, whole)).toEqual(whole);
    expect(resolved({ from: 120, to: 180 }, whole)).toEqual({ from: 120, to: 180 });
  });
  it("stays within what is known", () => {
    expect(resolved({ from: 20, to: 80 }, whole)).toEqual({ from: 100, to: 160 });
    expect(moved({ from: 300, to: 400 }, whole, 0.3)).toEqual({ from: 300, to: 400 });
    expect(moved({ from: 300, to: 400 }, whole, -0.3)).toEqual({ from: 270, to: 370 });
  });
  it("zooms around its middle, and out to everything", () => {
    expect(zoomed(whole, whole, 0.5, 0.5)).toEqual({ from: 175, to: 325 });
    expect(zoomed({ from: 175, to: 325 }, whole, 2)).toBeNull();
  });
});
