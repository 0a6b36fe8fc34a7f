import { describe, expect, it } from "vitest";
import { read, readView, write, writeView } from "../src/router";

describe("addresses", () => {
  it("reads every page", () => {
    expect(read("/")).toMatchObject({ page: "jobs" });
    expect(read("/jobs")).toMatchObject({ page: "jobs" });
    expect(read("/jobs/resnet-3fa9")).toMatchObject({ page: "job", id: "resnet-3fa9", view: "overview" });
    expect(read("/jobs/resnet-3fa9/stacks")).toMatchObject({ view: "stacks" });
    expect(read("/incidents/x/ranks/12")).toMatchObject({ page: "incident", id: "x", view: "ranks", rank: 12 });
    expect(read("/incidents")).toMatchObject({ page: "incidents" });
    expect(read("/history")).toMatchObject({ page: "history" });
    expect(read("/captures/c-1")).toMatchObject({ page: "capture" });
  });
  it("does not fall for what is none", () => {
    expect(read("/nowhere")).toMatchObject({ page: "lost" });
    expect(read("/captures")).toMatchObject({ page: "lost" });
    expect(read("/jobs/%zz")).toMatchObject({ page: "job", id: "%zz" });
    expect(readView(["ranks", "x"])).toEqual({ view: "overview", rank: null });
    expect(readView(["constructor"])).toEqual({ view: "overview", rank: null });
  });
  it("writes what it reads", () => {
    for (const path of ["/jobs/a", "/jobs/a/steps", "/incidents/b/ranks/3", "/captures/c/evidence"]) {
      expect(write(read(path) as Parameters<typeof write>[0])).toBe(path);
    }
    expect(writeView("overview")).toBe("");
  });
});
