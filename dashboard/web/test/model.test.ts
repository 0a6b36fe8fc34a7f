import { describe, expect, it } from "vitest";
import { groupCalls, mismatched } from "../src/model/calls";
import { columnsOf, groupsOf, sayRanks, situations, uneventful, without } from "../src/model/columns";
import { isUser, site } from "../src/model/frames";
import { at, layOut, userOnly } from "../src/model/icicle";
import { kindOf, PHASES, sayPhase } from "../src/model/phases";
import { speedscope } from "../src/model/speedscope";
import { waitGraph } from "../src/model/waits";
import type { Wait } from "../src/records";
import { call, columns, frame, head, incident, node, report, wait } from "./make";

const ALL = [0, 1, 2, 3];

describe("collectives lined up", () => {
  const ranks = ALL.map((rank) => {
    const short = rank === 3;
    return report(rank, {
      collectives: {
        heads: [head("0", ALL, short ? 501 : 502, 500)],
        recent: [call(500, "all_reduce"), call(501, short ? "barrier" : "all_reduce", { retired: false }), ...(short ? [] : [call(502, "all_reduce", { retired: false })])],
        open_calls: [],
        source: "flight-recorder",
        answer_cpu_s: 0,
        without_gradients: [],
        tasks: [],
      },
    });
  });
  const [group] = groupCalls(incident(ranks));
  it("puts the newest first, with who arrived and who is missing", () => {
    expect(group!.calls.map((line) => line.seq)).toEqual([502, 501, 500]);
    expect(group!.calls[0]).toMatchObject({ missing: [3], unknown: [] });
    expect(group!.calls[0]!.variants[0]).toMatchObject({ ranks: [0, 1, 2], open: [0, 1, 2] });
  });
  it("sees that ranks came to one number with different calls", () => {
    expect(group!.calls.map(mismatched)).toEqual([false, true, false]);
    expect(group!.calls[1]!.variants.map((variant) => [variant.op, variant.ranks])).toEqual([["all_reduce", [0, 1, 2]], ["barrier", [3]]]);
  });
  it("does not call it missing where a rank lists no calls", () => {
    const silent = report(1, { collectives: { heads: [head("0", [0, 1], 5)], recent: [], open_calls: [], source: "board", answer_cpu_s: 0, without_gradients: [], tasks: [] } });
    const telling = report(0, { collectives: { heads: [head("0", [0, 1], 5)], recent: [call(5, "broadcast")], open_calls: [call(5, "broadcast")], source: "board", answer_cpu_s: 0, without_gradients: [], tasks: [] } });
    const [lined] = groupCalls(incident([telling, silent]));
    expect(lined!.calls).toHaveLength(1);
    expect(lined!.calls[0]).toMatchObject({ missing: [], unknown: [1] });
  });
});

describe("ranks in columns", () => {
  it("turns an incident into what the live page gets", () => {
    const progress = (step: number) => ({ epoch: 0, batch: step, step, optimizer_steps: 0, forwards: 0, ticks: 0, draws: 0, calls: 2 * step, completed: 0, at: 0, backward_step: null, accumulated_step: null });
    const found = columnsOf(incident([report(1, { progress: progress(249), host: "b" }), report(0, { progress: progress(250) })], {}));
    expect(found).toMatchObject({ rank: [0, 1], step: [250, 249], lag: [0, 1], nodes: ["node-a", "b"], node: [0, 1] });
    expect(found.phases[found.phase[0]!]).toBe("backward");
  });
  it("names the ranks that never came", () => {
    const job = incident([report(0)]).job;
    expect(columnsOf(incident([report(0)], { job: { ...job, world_size: 4 } })).absent).toBe("1-3");
    expect(sayRanks("1-3,7")).toBe("1-3 and 7");
  });
  it("groups members by how far they are", () => {
    const ranks = ALL.map((rank) => report(rank, { collectives: { heads: [head("0", ALL, rank === 3 ? 5 : 6)], recent: [], open_calls: [], source: "board", answer_cpu_s: 0, without_gradients: [], tasks: [] } }));
    expect(groupsOf(incident(ranks)).groups[0]).toMatchObject({ size: 4, issued: 6, behind: "3", heads: [{ issued: 6, ranks: "0-2" }, { issued: 5, ranks: "3" }] });
  });
  it("says ten thousand ranks in a few lines, who is at fault first", () => {
    const many = columns(10_000, { still_s: new Array<number>(10_000).fill(9) });
    many.phase[7777] = PHASES.indexOf("between");
    const lines = situations(many, new Set([7777]));
    expect(lines.map((line) => [line.ranks.length, line.phase, line.atFault])).toEqual([[1, "between", true], [9999, "backward", false]]);
  });
});

function graphOf(...waits: Wait[]) {
  return waitGraph({ waits, culprits: [] });
}

it("puts ranks that move on one line, whatever their phases", () => {
  const moving = columns(4, { phase: [4, 5, 6, 7], step: [5, 5, 5, 4] });
  expect(situations(moving, new Set()).map((line) => [line.ranks, line.phase, line.step])).toEqual([[[0, 1, 2], "", 5], [[3], "", 4]]);
  // once the job has ended, each of them stands where it was last
  expect(situations(moving, new Set(), true).map((line) => [line.ranks, line.phase])).toEqual([0, 1, 2, 3].map((rank) => [[rank], PHASES[4 + rank]]));
});

describe("who waits for whom", () => {
  it("lets one edge speak for many", () => {
    expect(graphOf({ ...wait(0, [3], "x"), also: [1, 2] }).nodes.map((node) => node.ranks)).toEqual([[0, 1, 2], [3]]);
  });
  it("makes ranks in one wait one node, and puts who is at fault last", () => {
    const culprits = [{ rank: 3, pid: null, host: "", process: "rank", where: null, excerpt: null }];
    const graph = waitGraph({ waits: [wait(0, [3], "all_reduce"), wait(1, [3], "all_reduce"), wait(2, [3], "all_reduce"), wait(3, [0, 1, 2], "barrier")], culprits });
    expect(graph.nodes).toEqual([{ ranks: [0, 1, 2], atFault: false }, { ranks: [3], atFault: true }]);
    expect(graph.edges.map((edge) => [edge.from, edge.to])).toEqual([[0, [1]], [1, [0]]]);
  });
  it("draws an awaited rank that waits for nobody, and cycles", () => {
    expect(graphOf(wait(1, [0], "x")).nodes.map((node) => node.ranks)).toEqual([[1], [0]]);
    const cycle = graphOf(wait(0, [1], "a"), wait(1, [2], "b"), wait(2, [0], "c"));
    expect(cycle.edges.map((edge) => [edge.from, edge.to[0]])).toEqual([[0, 1], [1, 2], [2, 0]]);
  });
  it("leaves out what nobody could read", () => {
    const waits = Array.from({ length: 40 }, (_, rank) => wait(rank, [(rank + 1) % 40], `edge ${rank}`));
    const graph = graphOf(...waits);
    expect(graph.nodes.length).toBeLessThanOrEqual(10);
    expect(graph.cut).toBe(32);
  });
});

describe("the icicle", () => {
  const tree = [node("main", ALL, node("train", [0, 1, 2], node("/opt/site-packages/torch/x.py", [0, 1, 2])), node("exit", [3]))];
  it("is as wide as there are ranks, and marks where few stand elsewhere", () => {
    const boxes = layOut(tree);
    expect(boxes.map((box) => [box.node.frame.function, box.x, box.width, box.minority])).toEqual([
      ["main", 0, 1, false], ["train", 0, 0.75, false], ["/opt/site-packages/torch/x.py", 0, 0.75, false], ["exit", 0.75, 0.25, true],
    ]);
    expect(boxes.map((box) => box.ends)).toEqual([[], [], [0, 1, 2], [3]]);
  });
  it("keeps one of ten thousand visible, within the whole", () => {
    const many = Array.from({ length: 10_000 }, (_, rank) => rank);
    const boxes = layOut([node("main", many, node("most", many.slice(1)), node("one", [0]))]);
    expect(boxes.find((box) => box.node.frame.function === "one")!.width).toBeGreaterThan(0.015);
    expect(Math.max(...boxes.map((box) => box.x + box.width))).toBeLessThanOrEqual(1.0001);
  });
  it("leaves the branch of a rank at fault wide enough to be read", () => {
    const many = Array.from({ length: 128 }, (_, rank) => rank);
    const deep = [node("main", many, node("most", many.slice(2), node("leaf", many.slice(2))), node("one", [0, 1], node("a", [0]), node("b", [1])))];
    const widths = new Map(layOut(deep, new Set([0]), 0.18).map((box) => [box.node.frame.function, box.width]));
    expect(widths.get("one")).toBeCloseTo(0.18);
    expect(widths.get("a")! + widths.get("b")!).toBeLessThanOrEqual(0.1801);
    const both = layOut(deep, new Set([0, 1]), 0.18).filter((box) => ["a", "b"].includes(box.node.frame.function));
    expect(both.map((box) => Math.round(100 * box.width))).toEqual([18, 18]);
  });
  it("can leave out what is not the user's", () => {
    const [main] = userOnly(tree);
    expect(main!.children.map((child) => child.frame.function)).toEqual(["train", "exit"]);
  });
  it("finds a frame again in newer evidence", () => {
    const { trail } = layOut(tree).find((box) => box.node.frame.function === "exit")!;
    const newer = [node("main", ALL, node("exit", [2, 3]), node("train", [0, 1]))];
    expect(at(newer, trail)!.ranks).toEqual([2, 3]);
    expect(at([], trail)).toBeNull();
  });
  it("goes to speedscope with one sample a stack", () => {
    const file = JSON.parse(speedscope(incident([], { stack_tree: tree })));
    expect(file.profiles[0]).toMatchObject({ weights: [3, 1], endValue: 4 });
    expect(file.shared.frames.at(-1).name).toBe("rank 3");
  });
});

describe("frames", () => {
  it("knows whose code it is", () => {
    expect([frame("/home/mia/train.py"), frame("/opt/v/lib/python3.12/site-packages/torch/a.py"), frame("/usr/lib/python3.12/queue.py"), frame("libtorch.so", 0, "x", true), frame("<frozen runpy>")].map(isUser)).toEqual([true, false, false, false, false]);
    expect(site([frame("/x/site-packages/torch/a.py", 5), frame("train.py", 71)])!.line).toBe(71);
    expect(site([])).toBeNull();
  });
  it("has a look and words for every phase", () => {
    for (const phase of PHASES) expect(sayPhase(phase).length).toBeGreaterThan(3);
    expect(kindOf("something new")).toBe("start");
  });
});

describe("who is at fault", () => {
  it("is drawn apart from ranks that only wait in the same place", () => {
    const edge: Wait = { ...wait(0, [], "data"), also: [1, 2, 3] };
    const graph = waitGraph({ waits: [edge], culprits: [{ rank: 1, pid: 1, host: "", process: "loader-worker", where: null, excerpt: null }] });
    // its worker is at fault, and drawn; the rank itself waits like the others
    expect(graph.nodes.map((node) => [node.ranks, node.atFault, node.home ?? false])).toEqual([[[0, 2, 3], false, false], [[1], false, true], [[], true, false]]);
    expect(graph.nodes[2]!.awaits).toBe("loader worker of rank 1, pid 1");
    expect(graph.edges.at(-1)).toMatchObject({ from: 1, to: [2] });
  });
});

describe("a large job that hangs", () => {
  const many = columns(128, { node: Array.from({ length: 128 }, (_, rank) => rank >> 3), nodes: Array.from({ length: 16 }, (_, node) => `node-${node}`) });
  const filled = { ...many, phase: many.rank.map((rank) => (rank === 42 ? 1 : 0)), step: many.rank.map(() => 7) };
  it("leaves out nodes on which nothing stands out", () => {
    const calm = uneventful(filled, new Set([42]));
    expect(calm.size).toBe(15);
    expect(without({ ...filled, lag: many.rank }, calm).rank).toEqual([40, 41, 42, 43, 44, 45, 46, 47]);
  });
  it("shows all of them while nobody is at fault", () => {
    expect(uneventful(filled, new Set()).size).toBe(0);
  });
});
