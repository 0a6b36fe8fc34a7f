import { describe, expect, it } from "vitest";
import { lacks, oneOfNodes } from "../src/model/lacks";
import type { CaptureNote } from "../src/records";

const note = (source: string, detail: string, rank: number | null = null, ok = false): CaptureNote => ({ source, ok, detail, rank, took_s: 0 });

describe("evidence that could not be had", () => {
  it("is one sentence for many nodes that did not answer", () => {
    const notes = Array.from({ length: 32 }, (_, index) => note("node", `gpu-${index} did not answer; last heard of ${10 + index} s ago`));
    expect(lacks([...notes, note("gpu", "no driver")])).toEqual([
      "32 nodes did not answer: gpu-0, gpu-1, gpu-2 and 29 more; last heard of 10 to 41 s ago",
      "gpu (no driver)",
    ]);
    expect(oneOfNodes(notes)).toHaveLength(1);
  });
  it("leaves one node, and other notes, as they are", () => {
    expect(lacks([note("node", "gpu-0 did not answer; last heard of 9 s ago")])).toEqual(["gpu-0 did not answer; last heard of 9 s ago"]);
    expect(lacks([note("native stacks", "no right", 1), note("native stacks", "no right", 2), note("gpu", "", null, true)])).toEqual(["native stacks of ranks 1-2 (no right)"]);
  });
});
