// Written by scripts/generate_types.py from hangwatch_dashboard/answers.py. Edit there.

import type { Certainty, Divergence, GroupMembers, HealthWarning, Identity, Incident, JobHealth, Judgement, NodeFacts, Phase, RankBeat, Stage, Status } from "./records";

export type JobState = "starting" | "running" | "waiting" | "hung" | "lingering" | "failed" | "finished" | "silent";

export type ReviewState = "open" | "acknowledged" | "resolved";

export type CaptureState = "asked" | "done" | "failed";

export interface ApiFailure {
  error: string;
}

export interface IncidentReview {
  state: ReviewState;
  note: string;
  at: number | null;
}

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
  hang: Certainty | null;
  certainty: Certainty;
  summary: string;
  fix: string;
  culprits: number[];
  host: string;
  judged_by: string;
  place: string;
  group: string;
}

export interface ListedIncident {
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
  hang: Certainty | null;
  certainty: Certainty;
  summary: string;
  fix: string;
  culprits: number[];
  host: string;
  judged_by: string;
  place: string;
  group: string;
  review: IncidentReview;
}

export interface IncidentList {
  incidents: ListedIncident[];
  total: number;
}

export interface IncidentGroup {
  group: string;
  count: number;
  jobs: number;
  first_at: number;
  last_at: number;
  last: ListedIncident;
  review: IncidentReview;
}

export interface CauseCount {
  cause: string;
  count: number;
}

export interface IncidentGroups {
  groups: IncidentGroup[];
  total: number;
  causes: CauseCount[];
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
  closed_at: number | null;
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

export interface JobList {
  jobs: JobSummary[];
  total: number;
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
  state: CaptureState;
  reason: string;
  asked_at: number;
  done_at: number | null;
  nodes_asked: string[];
  nodes_answered: string[];
  document: Incident | null;
}

export interface CaptureList {
  captures: Capture[];
}

export interface JobDetail {
  key: string;
  id: string;
  name: string;
  world_size: number | null;
  launcher: string;
  command: string;
  started_at: number;
  last_seen_at: number;
  closed_at: number | null;
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
  judgement: Judgement | null;
  judged_at: number | null;
  open_incident: string | null;
  node_list: NodeRow[];
  groups: GroupMembers[];
  warning_list: HealthWarning[];
  divergences: Divergence[];
  capture: Capture | null;
}

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

export interface RankDetail {
  rank: number;
  node: string;
  identity: Identity | null;
  beat: RankBeat;
  groups: GroupMembers[];
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
  step: ((number | null)[])[];
  phase: ((number | null)[])[];
  step_s: ((number | null)[])[];
  data_s: ((number | null)[])[];
  still_s: ((number | null)[])[];
}

export interface HealthOfJob {
  job: string;
  at: number;
  health: JobHealth;
}

export interface Session {
  required: boolean;
  signed_in: boolean;
  may_delete: boolean;
}

export interface About {
  version: string;
  server_time: number;
  store: string;
  nodes: number;
  ranks: number;
}

export interface Health {
  status: string;
}

export interface Taken {
  accepted: boolean;
}

export interface TakenIncident {
  accepted: boolean;
  incident: string | null;
}
