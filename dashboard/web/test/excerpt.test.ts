import { describe, expect, it } from "vitest";
import { dedented } from "../src/views/excerpt";

describe("an excerpt", () => {
  it("loses the indentation that all lines share", () => {
    expect(dedented(["        for batch in loader:", "", "            step(batch)"])).toEqual(["for batch in loader:", "", "    step(batch)"]);
    expect(dedented(["\tif x:", "\t\ty()"])).toEqual(["if x:", "\ty()"]);
  });
  it("keeps lines that share none", () => {
    expect(dedented(["    a", "b", "\tc"])).toEqual(["    a", "b", "\tc"]);
    expect(dedented(["  a", "\tb"])).toEqual(["  a", "\tb"]);
    expect(dedented([])).toEqual([]);
    expect(dedented(["", "  "])).toEqual(["", "  "]);
  });
});
