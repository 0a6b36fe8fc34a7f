import { expect, test } from "vitest";
import { markdown } from "../src/model/markdown";
import type { Verdict } from "../src/records";

const verdict: Verdict = {
  cause: "uneven-steps", certainty: "proven", summary: "Rank 3 ran out of data", fix: "drop_last=True", docs: "",
  culprits: [{
    rank: 3, pid: 4711, host: "node-b", process: "rank", where: { file: "/home/mia/train.py", line: 88, function: "main", native: false },
    excerpt: { file: "/home/mia/train.py", line: 88, first: 87, lines: ["x = 1", "dist.barrier()"], changed: false },
  }],
  victims: [0], step: { epoch: 0, batch: 1, step: 1 }, evidence: ["others 251"], alternatives: [{ cause: "early-exit", certainty: "undetermined", why_not: "its loader is exhausted", open: false }],
  waits: [], details: [], hang: "proven", argument: [], diff: null, ends: [],
};

test("a verdict as Markdown says what the page says", () => {
  const text = markdown(verdict, "HUNG, proven", { name: "vision", id: "1" }, "http://monitor/jobs/vision");
  for (const part of ["**HUNG, proven** in `vision`", "> Rank 3 ran out of data", "Ranks ran out of data at different batches (`uneven-steps`), cause proven", "rank 3, pid 4711 on node-b at `/home/mia/train.py:88`", ">   88 dist.barrier()", "**Evidence**\n\n- others 251", "- One rank left the training loop early (`early-exit`): its loader is exhausted", "More: <http://monitor/jobs/vision>"]) {
    expect(text).toContain(part);
  }
});

test("code in a sentence is shown as it is, and a lone backtick is text", () => {
  const text = markdown({ ...verdict, summary: "wrap it in `with Join([model]):`, not ` <b> ``", details: ["Rank 0 waits [x]."] }, "HUNG", { name: "x", id: "1" }, "");
  expect(text).toContain("> wrap it in `with Join([model]):`, not \\` \\<b> \\`\\` Rank 0 waits \\[x\\].");
});

test("an arrow in a sentence stays one, and a sentence that begins with > is no quotation", () => {
  const text = markdown({ ...verdict, summary: "a socket 10.0.0.1:1 -> 10.0.0.2:2", evidence: ["> 3 s"] }, "HUNG", { name: "x", id: "1" }, "");
  expect(text).toContain("> a socket 10.0.0.1:1 -> 10.0.0.2:2");
  expect(text).toContain("- \\> 3 s");
});

test("a hostile sentence is no markup and mentions no user", () => {
  const evil = { ...verdict, summary: "<img src=x> [a](http://evil) @everyone\n# title **b**" };
  const text = markdown(evil, "HUNG", { name: "`x`", id: "1" }, "");
  expect(text).toContain("> \\<img src=x> \\[a\\](http://evil) @\u200beveryone \\# title \\*\\*b\\*\\*");
  expect(text).toContain("in `'x'`");
});

test("it ends with what to check first next time, where that is known", () => {
  const checks = [{ check: "loader lengths", command: "hangwatch doctor loader", why: "the loaders differ" }];
  expect(markdown(verdict, "HUNG", { name: "x", id: "1" }, "", checks)).toContain("**Next time, check first**\n\n- `hangwatch doctor loader` (loader lengths): the loaders differ\n");
  expect(markdown(verdict, "HUNG", { name: "x", id: "1" }, "")).not.toContain("Next time");
});
