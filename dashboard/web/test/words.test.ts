import { describe, expect, it } from "vitest";
import { argumentTitle, cause, clean, command, culprit, duration, endedAs, ending, fromRanges, parseClean, pastForecast, place, ranges, ranks, runs, saidMoment, shortTime, size, tickTime } from "../src/words";
import { frame } from "./make";

describe("numbers in words", () => {
  it("says durations as the terminal does", () => {
    expect([3.14, 9.96, 95, 725, 7200, 12000, 200000].map(duration)).toEqual(["3.1 s", "10 s", "95 s", "12 min 5 s", "2 h 0 min", "3 h 20 min", "2 days"]);
    expect(duration(-1)).toBe("0.0 s");
  });
  it("says short times in milliseconds", () => {
    expect([0, 0.0042, 0.163, 1.386, 75].map(shortTime)).toEqual(["0 s", "4.2 ms", "163 ms", "1.39 s", "75 s"]);
  });
  it("says the marks of an axis without places that say nothing", () => {
    expect([0, 0.25, 0.0005, 1, 5, 2.5, 10, 150].map(tickTime)).toEqual(["0 s", "250 ms", "0.5 ms", "1 s", "5 s", "2.5 s", "10 s", "2 min 30 s"]);
  });
  it("says sizes with a unit", () => {
    expect([512, 3.4 * 1024 ** 2, 80 * 1024 ** 3].map(size)).toEqual(["512 B", "3.4 MiB", "80 GiB"]);
  });
});

describe("commands", () => {
  it("leaves out the folder of the program alone", () => {
    expect(command("/opt/venv/bin/python -m torch.distributed.run /home/mia/train.py")).toBe("python -m torch.distributed.run /home/mia/train.py");
    expect(["torchrun train.py --data /data/birds", "python", "", "/usr/bin/python"].map(command)).toEqual(["torchrun train.py --data /data/birds", "python", "", "python"]);
  });
});

describe("jobs that are over", () => {
  it("tells how a command ended: a signal, also where the launcher passed it on as an exit code", () => {
    expect([null, 0, 1, -15, 143, 255].map(ending)).toEqual(["", "", "exit code 1", "signal 15", "signal 15", "exit code 255"]);
  });
  it("speaks of the verdict in the past", () => {
    expect(endedAs("hung", "signal 15")).toBe("was hung, then ended (signal 15)");
    expect(endedAs("lingering", "")).toBe("lingered, then ended");
    expect(endedAs("failed", "exit code 1")).toBe("failed (exit code 1)");
  });
  it("tells a forecast as one", () => {
    const said = "The loader of rank 1 has 150 batches, that of rank 0 151: the job will hang at epoch 0, batch 150 (step 150), unless the loop ends before or the ranks agree on its end";
    expect(pastForecast({ kind: "uneven-forecast", summary: said })).toBe("The loader of rank 1 has 150 batches, that of rank 0 151: the job was going to hang at epoch 0, batch 150 (step 150)");
    expect(pastForecast({ kind: "straggler", summary: "rank 2 will hang" })).toBeNull();
  });
});

describe("moments", () => {
  const at = (day: number, hour: number): number => new Date(2026, 10, day, hour, 2, 10).getTime() / 1000;
  it("ends a sentence with the day as people name it", () => {
    const now = at(25, 9); // a Wednesday
    expect([at(25, 1), at(24, 23), at(22, 14), at(19, 8)].map((moment) => saidMoment(moment, now))).toEqual([
      "today at 01:02:10", "yesterday at 23:02:10", "on Sunday at 14:02:10", "on Thursday at 08:02:10",
    ]);
    expect(saidMoment(at(18, 9), now)).toBe("on Nov 18, 2026 at 09:02:10");
  });
});

describe("ranks", () => {
  it("says ranges, not lists", () => {
    expect(ranges([2, 0, 1, 5])).toBe("0-2 and 5");
    expect(ranks([3])).toBe("rank 3");
    expect(ranks([])).toBe("no rank");
    expect(ranges(Array.from({ length: 20 }, (_, index) => index * 2))).toMatch(/ and 12 more$/);
  });
  it("reads ranges back", () => {
    expect(fromRanges("0-2,7, 5")).toEqual([0, 1, 2, 7, 5]);
    expect(fromRanges("x, -3, 4-")).toEqual([]);
    expect(fromRanges("0-999999999", 10)).toHaveLength(10);
    expect(runs(fromRanges("0-9999"))).toEqual([[0, 9999]]);
  });
});

describe("the two answers", () => {
  it("says them as the terminal does", () => {
    const said = (["proven", "likely", "undetermined"] as const).map((certainty) => cause("uneven-steps", certainty));
    expect(said).toEqual(["cause proven", "cause likely", "cause uncertain"]);
    expect(cause("undetermined", "undetermined")).toBe("cause not known");
    expect(argumentTitle("proven")).toBe("Proof that the job is dead");
    expect(argumentTitle("likely")).toBe("Why the job is called hung");
  });
});

describe("hostile strings", () => {
  it("makes control and direction characters visible", () => {
    expect(clean("a\u001b[31mb\u202ec")).toBe("a\\x1b[31mb\\u202ec");
    expect(clean("line\n\tnext")).toBe("line\n\tnext");
    expect(clean("Zürich 東京 🙂")).toBe("Zürich 東京 🙂");
  });
  it("cleans every string of a document", () => {
    expect(parseClean('{"a": ["x\\u200by"], "b": 1}')).toEqual({ a: ["x\\u200by"], b: 1 });
    expect(parseClean('["\u202e", "\u007f", "\\b", "\\r", "\\u001b[31m"]')).toEqual(["\\u202e", "\\x7f", "\\x08", "\\x0d", "\\x1b[31m"]);
    expect(parseClean('{"a": ["all\\nin \\\\order"], "b": 1.5}')).toEqual({ a: ["all\nin \\order"], b: 1.5 });
  });
});

describe("places and culprits", () => {
  it("says the file's name and the line", () => {
    expect(place(frame("/home/mia/train.py", 88))).toBe("train.py:88");
    expect(place(frame("libtorch.so", 0))).toBe("libtorch.so");
  });
  it("says who it is", () => {
    const who = { rank: 3, pid: 4711, host: "node-b", process: "rank", where: null, excerpt: null };
    expect(culprit(who)).toBe("rank 3, pid 4711 on node-b");
    expect(culprit({ ...who, process: "loader-worker" })).toBe("loader worker of rank 3, pid 4711 on node-b");
    expect(culprit({ ...who, rank: null, pid: null, host: "" })).toBe("a process");
  });
});
