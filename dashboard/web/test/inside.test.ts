import { describe, expect, it } from "vitest";
import { columnsOf } from "../src/model/columns";
import { inside, ownWaits } from "../src/model/inside";
import { waitGraph } from "../src/model/waits";
import type { Culprit, RankReport } from "../src/records";
import { call, head, incident, report, verdict, wait } from "./make";

const ALL = [0, 1, 2, 3];
const BLAMED: Culprit = { rank: 1, pid: 101, host: "node-a", process: "rank", where: null, excerpt: null };

/** Rank 1 has run out of data: it is in barrier 305, for which the others made all_reduce 305, and 306 after it. */
function uneven(culprit: Partial<RankReport> = {}): RankReport[] {
  return ALL.map((rank) => {
    const behind = rank === 1;
    const recent = behind ? [call(305, "barrier", { retired: false })] : [call(305, "all_reduce", { retired: false }), call(306, "all_reduce", { retired: false })];
    const collectives = { heads: [head("0", ALL, behind ? 305 : 306, 304)], recent, open_calls: behind ? recent : [], source: "flight-recorder", answer_cpu_s: 0, without_gradients: [] };
    return report(rank, { collectives, ...(behind ? culprit : { waiting_for: "rank 1, in all_reduce 305 of group 0" }) });
  });
}

const said = verdict({ culprits: [BLAMED], waits: [{ ...wait(0, [1], "all_reduce 305 of group 0"), also: [2, 3] }] });

describe("what a rank is inside of", () => {
  it("is said of blamed ranks too, which the verdict's waits leave out", () => {
    const found = columnsOf(incident(uneven(), { verdict: said }));
    expect(found.waiting_for).toEqual({ 0: "rank 1, in all_reduce 305 of group 0", 1: "barrier 305 of group 0", 2: "rank 1, in all_reduce 305 of group 0", 3: "rank 1, in all_reduce 305 of group 0" });
  });
  it("names the peer of a message, and nothing for a rank that is gone", () => {
    const message = (more: Partial<RankReport>) => report(0, { collectives: { ...report(0).collectives, open_calls: [call(7, "recv", { peer: 2 })] }, ...more });
    expect(inside(message({}))).toBe("recv with rank 2");
    expect(inside(message({ ended_at: 99 }))).toBe("");
    expect(inside(report(0))).toBe("");
  });
});

describe("waits of blamed ranks", () => {
  it("are for the members that made another call under the number", () => {
    expect(ownWaits(said, uneven())).toMatchObject([{ rank: 1, awaited: [0, 2, 3], what: "barrier 305 of group 0", where: { file: "train.py", line: 71 } }]);
    const graph = waitGraph({ culprits: said.culprits, waits: [...said.waits, ...ownWaits(said, uneven())] });
    expect(graph.nodes.map((node) => node.ranks)).toEqual([[0, 2, 3], [1]]);
    expect(graph.edges.map((edge) => [edge.from, edge.to, edge.what])).toEqual([[0, [1], "all_reduce 305 of group 0"], [1, [0], "barrier 305 of group 0"]]);
  });
  it("are not told twice, nor of a rank that is gone, nor where all have come", () => {
    const known = { ...said, waits: [...said.waits, wait(1, [0, 2, 3], "barrier 305 of group 0")] };
    expect(ownWaits(known, uneven())).toEqual([]);
    expect(ownWaits(said, uneven({ ended_at: 99 }))).toEqual([]);
    const same = uneven().map((rank) => ({ ...rank, collectives: { ...rank.collectives, recent: [call(305, "barrier")] } }));
    expect(ownWaits(said, same)).toEqual([]);
  });
  it("do not count members whose calls are not known", () => {
    const silent = uneven().map((rank) => (rank.rank === 2 ? { ...rank, collectives: { ...rank.collectives, recent: [] } } : rank));
    expect(ownWaits(said, silent)).toMatchObject([{ awaited: [0, 3] }]);
  });
});
