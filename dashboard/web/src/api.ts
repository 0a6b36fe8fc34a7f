// What the dashboard answers (docs/api.md), and how it is asked.

import type {
  Divergence, GroupMembers, HealthWarning, Identity, Incident, Judgement, NodeFacts, Phase, RankBeat, Stage, Status, Certainty,
} from "./records";
import { parseClean } from "./words";

export type JobState = "starting" | "running" | "waiting" | "hung" | "lingering" | "failed" | "finished" | "silent";

export interface IncidentSummary {
  id: string;
  job: string;
  job_name: string;
  opened_at: number;
  updated_at: number;
  closed_at: number | null;
  detected_after_s: number;
  status: Status;
  stage: Stage;
  cause: string;
  hang: Certainty | null; // how sure it is that the job is dead; null where it is not called hung
  certainty: Certainty; // of the cause
  summary: string;
  fix: string;
  culprits: number[];
  host: string;
}

export interface JobSummary {
  key: string;
  id: string;
  name: string;
  world_size: number | null;
  launcher: string;
  command: string;
  started_at: number;
  last_seen_at: number;
  nodes: number;
  nodes_expected: number | null;
  nodes_silent: number;
  ranks: number;
  state: JobState;
  state_text: string;
  steps_per_s: number;
  step: number;
  step_max: number;
  incident: IncidentSummary | null;
  warnings: number;
  dropped: number;
}

export interface NodeRow {
  node: string;
  host: string;
  ranks: number[];
  silent_s: number;
  clock_offset_s: number;
  last_seen_at: number;
  dropped: number;
  closed: boolean;
  exit_code: number | null;
  facts: NodeFacts | null;
}

export interface Capture {
  id: string;
  job: string;
  state: "asked" | "done" | "failed";
  reason: string;
  asked_at: number;
  done_at: number | null;
  nodes_asked: string[];
  nodes_answered: string[];
  document: Incident | null;
}

export interface JobDetail extends JobSummary {
  judgement: Judgement | null;
  judged_at: number | null;
  open_incident: string | null;
  node_list: NodeRow[];
  groups: GroupMembers[];
  warning_list: HealthWarning[];
  divergences: Divergence[];
  capture: Capture | null;
}

/** Columns of equal length, one entry a rank, in order of rank. */
export interface RankColumns {
  job: string;
  at: number;
  phases: Phase[];
  nodes: string[];
  rank: number[];
  node: number[];
  pid: (number | null)[];
  phase: number[];
  step: number[];
  epoch: (number | null)[];
  batch: (number | null)[];
  lag: number[];
  still_s: number[];
  patience_s: number[];
  steps: number[];
  data_s: number[];
  compute_s: number[];
  sync_s: number[];
  last_step_s: number[];
  issued: number[];
  waiting_for: Record<string, string>;
  exception: Record<string, string>;
  process_state: Record<string, string>;
  absent: string;
}

export interface GroupHeads {
  issued: number;
  completed: number;
  ranks: string;
}

export interface GroupRow {
  id: string;
  name: string;
  description: string;
  backend: string;
  members: string;
  size: number;
  issued: number;
  completed: number;
  heads: GroupHeads[];
  behind: string;
}

export interface GroupColumns {
  job: string;
  at: number;
  groups: GroupRow[];
}

export interface History {
  job: string;
  phases: Phase[];
  rank: number[];
  at: number[];
  step: (number | null)[][]; // null where nothing is known of the rank at that moment
  phase: number[][];
  step_s: (number | null)[][];
  data_s: (number | null)[][];
  still_s: (number | null)[][];
}

export interface RankDetail {
  rank: number;
  node: string;
  identity: Identity;
  beat: RankBeat;
  groups: GroupMembers[];
}

export interface Session {
  required: boolean;
  signed_in: boolean;
  may_delete: boolean;
}

export const API = "/api/v1";

/** An answer other than a good one; `status` is 0 where there was no answer at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export async function ask<T>(path: string, method = "GET", body?: unknown): Promise<T> {
  const request: RequestInit = { method, credentials: "same-origin", headers: { Accept: "application/json" } };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers = { Accept: "application/json", "Content-Type": "application/json" };
  }
  let response: Response;
  try {
    response = await fetch(API + path, request);
  } catch {
    throw new ApiError(0, "the dashboard does not answer");
  }
  const text = await response.text();
  if (!response.ok) throw new ApiError(response.status, reason(text) || `the dashboard answered ${response.status}`);
  return (text ? parseClean(text) : undefined) as T;
}

function reason(text: string): string {
  try {
    return String((JSON.parse(text) as { error?: unknown }).error ?? "");
  } catch {
    return "";
  }
}
