// Small records for tests; what a test does not say is empty.

import type { History, RankColumns } from "../src/api";
import { PHASES } from "../src/model/phases";
import type { ChainEnd, Collective, Frame, GroupHead, Incident, RankReport, StackNode, StepEntry, Verdict, Wait } from "../src/records";

export function frame(file: string, line = 1, name = "f", native = false): Frame {
  return { file, line, function: name, native };
}

export function head(name: string, members: number[], issued: number, completed = issued): GroupHead {
  return { name, members, description: "", backend: "gloo", issued, completed, sent: 0, received: 0, timeout_s: null, peers: [] };
}

export function call(seq: number, op: string, more: Partial<Collective> = {}): Collective {
  return {
    group: "0", seq, op, sizes: [[10]], dtypes: ["float32"], retired: true, peer: null, tag: null, thread_id: null, thread_name: "",
    frames: [frame("train.py", 71, "train")], at: null, step: null, output_sizes: [], started: null, via: 0, ...more,
  };
}

export function report(rank: number, more: Partial<RankReport> = {}): RankReport {
  return {
    rank, host: "node-a", pid: 100 + rank, phase: "backward", progress: null, waiting_for: "",
    collectives: { heads: [], recent: [], open_calls: [], source: "flight-recorder", answer_cpu_s: 0, without_gradients: [], tasks: [] },
    loader: [], exception: null, process: null, stacks: [], earlier_stacks: [], workers: [], children: [], gpu: null, reading: null,
    still_s: 3, patience_s: 120, moved: false, last_output: "", crash_trace: "", lock_files: [], polled: null, ended_at: null, phases: [], held: "", variables: null, ...more,
  };
}

export function verdict(more: Partial<Verdict> = {}): Verdict {
  return {
    cause: "uneven-steps", certainty: "proven", summary: "Rank 3 ran out of data.", fix: "", docs: "", culprits: [], victims: [],
    step: { epoch: null, batch: null, step: null }, evidence: [], alternatives: [], waits: [], details: [], hang: "proven", argument: [], diff: null, ends: [], ...more,
  };
}

export function chainEnd(rank: number, does: string, more: Partial<ChainEnd> = {}): ChainEnd {
  return { rank, does, awaits: "", pid: null, where: null, also: [], ...more };
}

export function incident(ranks: RankReport[], more: Partial<Incident> = {}): Incident {
  return {
    id: "3f2a", opened_at: 103, detected_after_s: 3, status: "hung", stage: "step",
    job: { id: "job", name: "vision", world_size: ranks.length, launcher: "", command: "", started_at: 0, nodes_expected: null },
    verdict: verdict(), ranks, stack_tree: [], nodes: [], launchers: [], others: [], divergences: [], warnings: [], capture: [],
    closed_at: null, updated_at: 104, schema: "hangwatch.incident/2", hangwatch_version: "", taken_at: 104, last_progress_at: 100, sampled_twice: true,
    launched: [], start_patience_s: 30, excerpts: [], call_sites: [], switches: [], check_next: [], health: null, store_keys: [], ...more,
  };
}

export function wait(rank: number, awaited: number[], what: string): Wait {
  return { rank, awaited, what, where: frame("train.py", 71), also: [] };
}

export function node(name: string, ranks: number[], ...children: StackNode[]): StackNode {
  return { frame: frame(name.includes("/") ? name : "train.py", 1, name), ranks, children };
}

export function step(step: number, at: number): StepEntry {
  return { step, epoch: 0, batch: step, loader: 0, at, issued: {}, optimizer_steps: null, backward_step: null, accumulated_step: null };
}

export function columns(count: number, more: Partial<RankColumns> = {}): RankColumns {
  const all = <T>(value: T): T[] => new Array<T>(count).fill(value);
  return {
    job: "j", at: 100, phases: PHASES, nodes: ["node-a"], rank: all(0).map((_, index) => index), node: all(0), pid: all(1), phase: all(7),
    step: all(5), epoch: all(0), batch: all(5), lag: all(0), still_s: all(0), patience_s: all(120), steps: all(6), data_s: all(1), compute_s: all(2),
    sync_s: all(3), last_step_s: all(1), issued: all(10), waiting_for: {}, exception: {}, process_state: {}, absent: "", ...more,
  };
}

export function history(more: Partial<History> = {}): History {
  return { job: "j", phases: PHASES, rank: [0, 1], at: [], step: [], phase: [], step_s: [], data_s: [], still_s: [], ...more };
}
