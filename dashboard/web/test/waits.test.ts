import { describe, expect, it } from "vitest";
import { columnsOf } from "../src/model/columns";
import { homes } from "../src/model/homes";
import { markdown } from "../src/model/markdown";
import { waitGraph } from "../src/model/waits";
import type { Culprit } from "../src/records";
import { chain } from "../src/words";
import { chainEnd, incident, report, verdict, wait } from "./make";

const BLAMED: Culprit = { rank: 1, pid: 101, host: "node-a", process: "rank", where: null, excerpt: null };
const WAITS = [{ ...wait(0, [1], "all_reduce 305 of group 0"), also: [2, 3] }];
const WORKER = chainEnd(1, "waits (train.py:60) for loader worker 0 (pid 88), which sleeps in load (data.py:12)", { awaits: "loader worker 0 (pid 88)", pid: 88 });

describe("the end of the chain of waits", () => {
  it("is drawn below the rank that waits for it", () => {
    const graph = waitGraph({ culprits: [BLAMED], waits: WAITS, ends: [WORKER] });
    expect(graph.nodes).toEqual([{ ranks: [0, 2, 3], atFault: false }, { ranks: [1], atFault: true }, { ranks: [], atFault: false, awaits: "loader worker 0 (pid 88)" }]);
    expect(graph.edges.map((edge) => [edge.from, edge.to])).toEqual([[0, [1]], [1, [2]]]);
  });
  it("is at fault where the verdict names that process, and not the rank that it belongs to", () => {
    const who: Culprit = { ...BLAMED, pid: 88, process: "loader-worker" };
    expect(waitGraph({ culprits: [who], waits: WAITS, ends: [WORKER] }).nodes).toEqual([
      { ranks: [0, 2, 3], atFault: false },
      { ranks: [1], atFault: false, home: true },
      { ranks: [], atFault: true, awaits: "loader worker 0 (pid 88)" },
    ]);
    expect([...homes({ culprits: [who] })]).toEqual([[1, "worker"]]);
    expect(homes({ culprits: [who, BLAMED] }).size).toBe(0);
  });
  it("has no box where a rank waits for nothing that is known, and one of its rank where no rank waits", () => {
    const end = chainEnd(1, "computes in project (train.py:22)");
    expect(waitGraph({ culprits: [BLAMED], waits: WAITS, ends: [end] })).toMatchObject({ nodes: [{ ranks: [0, 2, 3] }, { ranks: [1] }], ends: [end] });
    expect(waitGraph({ culprits: [BLAMED], waits: [], ends: [WORKER] }).nodes.map((node) => [node.ranks, node.atFault])).toEqual([[[1], true], [[], false]]);
  });
  it("is cut where there are too many, and missing in reports of older versions", () => {
    const ends = Array.from({ length: 9 }, (_, rank) => chainEnd(rank, "sleeps"));
    expect(waitGraph({ culprits: [BLAMED], waits: [], ends }).cut).toBe(5);
    expect(waitGraph({ culprits: [BLAMED], waits: WAITS })).toMatchObject({ nodes: [{ ranks: [0, 2, 3] }, { ranks: [1] }], ends: [], cut: 0 });
  });
  it("is said in sentences, in the words of the terminal", () => {
    const own = wait(1, [0, 2, 3], "barrier 305 of group 0");
    expect(chain({ culprits: [BLAMED], waits: [...WAITS, own], ends: [chainEnd(4, "has ended", { also: [5] })] })).toEqual([
      "ranks 0 and 2-3 wait for rank 1 in all_reduce 305 of group 0 (train.py:71)",
      "rank 1 waits for ranks 0 and 2-3 in barrier 305 of group 0 (train.py:71)",
      "ranks 4-5: each has ended",
    ]);
    expect(chain({ culprits: [], waits: WAITS })).toHaveLength(1);
    const together = [{ ...wait(0, [], "all_reduce 67 of group 0"), where: null, also: [1, 2] }];
    expect(chain({ culprits: [BLAMED], waits: together })).toEqual(["ranks 0 and 2 wait in all_reduce 67 of group 0", "rank 1 waits in all_reduce 67 of group 0"]);
    const said = markdown(verdict({ waits: WAITS, ends: [WORKER] }), "HUNG", { name: "x", id: "1" }, "");
    expect(said).toContain("- **Chain:** ranks 0 and 2-3 wait for rank 1 in all_reduce 305 of group 0 (train.py:71); rank 1 waits (train.py:60) for loader worker 0 (pid 88), which");
  });
});

it("shows in the table what the report says a rank waits for, and nothing of its own", () => {
  const ranks = [report(0, { waiting_for: "rank 1, in all_reduce 305 of group 0" }), report(1, { waiting_for: "loader worker 0 (pid 88)" }), report(2)];
  expect(columnsOf(incident(ranks)).waiting_for).toEqual({ 0: "rank 1, in all_reduce 305 of group 0", 1: "loader worker 0 (pid 88)" });
});
