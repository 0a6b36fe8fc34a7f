import { describe, expect, it } from "vitest";
import { cells, compared, titleOf, told } from "../src/model/diff";
import type { DiffCall, RanksDiff } from "../src/records";
import { frame } from "./make";

const made: DiffCall = { op: "all_reduce", group: "0", where: frame("/home/ann/train.py", 71), via: [], times: 2, open: false, caller: null };
const diff: RanksDiff = { lanes: [[0, 2, 3], [1]], compared: 4, iterations: [] };

describe("the ranks' diff", () => {
  it("tells a call with its place, and whether a rank waits in it", () => {
    expect(told(made)).toBe("all_reduce x2 (train.py:71)");
    expect(told({ ...made, times: 1, open: true, via: [frame("fit.py", 9)] })).toBe("all_reduce (train.py:71, below fit.py:9), waiting");
    expect(told(null)).toBe("-");
  });
  it("names the framework's function that made the call, and the user's line that runs the framework", () => {
    const below = { ...made, times: 1, caller: { ...frame("/site-packages/trainer/strategy.py", 9), function: "reduce" } };
    expect(told(below)).toBe("all_reduce (reduce, strategy.py:9, below train.py:71)");
    expect(told({ ...below, where: null })).toBe("all_reduce (reduce, strategy.py:9)");
  });
  it("names an iteration by as much as is known", () => {
    expect(titleOf({ step: { epoch: 0, batch: 5, step: 5 }, rows: [] })).toBe("epoch 0, batch 5 (step 5)");
    expect(titleOf({ step: { epoch: null, batch: null, step: 7 }, rows: [] })).toBe("step 7");
  });
  it("has a cell for each lane, and says where not all ranks were compared", () => {
    expect(cells(diff, [made])).toEqual([made, null]);
    expect(compared(diff, 4)).toBe("");
    expect(compared(diff, 300)).toBe("4 of 300 ranks were compared");
  });
});
