// Written by scripts/generate_types.py from hangwatch/model/. Edit there.

export interface ExceptionFacts {
  type: string;
  message: string;
  frames: Frame[];
  thread: string;
  at: number;
  fatal: boolean;
  step: number | null;
}

export interface GroupMade {
  index: number;
  members: number[];
  name: string;
  done: boolean;
  where: Frame | null;
}

export interface Identity {
  rank: number | null;
  world_size: number | null;
  local_rank: number | null;
  host: string;
  pid: number;
  started_at: number;
  job: string;
  command: string;
  launcher: string;
  torch_version: string;
  python_version: string;
  environment: Record<string, string>;
  attached_by: string;
  plan: Record<string, string>;
}

export interface LoaderFacts {
  index: number;
  length: number | null;
  epoch: number;
  drawn: number;
  resumed_at: number;
  exhausted: boolean;
  left: boolean;
  inside_next: boolean;
  num_workers: number;
  worker_pids: number[];
  training: boolean;
  where: Frame | null;
  dataset: string;
  dataset_length: number | null;
  batch_size: number | null;
  sampler: string;
  sampler_replicas: number | null;
  sampler_rank: number | null;
  sampler_length: number | null;
  shuffle: boolean | null;
  drop_last: boolean | null;
  sampler_seed: number | null;
  start_method: string;
  timeout_s: number;
  sampler_indices_hash: string;
  previous_indices_hash: string;
  first_epoch: number | null;
  looked: Frame | null;
  drawn_per_epoch: number[];
  exhausted_per_epoch: boolean[];
}

export interface PhaseSpan {
  at: number;
  phase: Phase;
  step: number;
}

export interface Progress {
  epoch: number | null;
  batch: number | null;
  step: number;
  optimizer_steps: number;
  forwards: number;
  ticks: number;
  draws: number;
  calls: number;
  completed: number;
  at: number;
  backward_step: number | null;
  accumulated_step: number | null;
}

export interface Reading {
  identity: Identity;
  taken_at: number;
  phase: Phase;
  phase_at: number;
  progress: Progress;
  ticker_at: number;
  heads: GroupHead[];
  calls: Collective[];
  calls_dropped: number | null;
  open_calls: Collective[];
  steps: StepEntry[];
  loaders: LoaderFacts[];
  exception: ExceptionFacts | null;
  caught: ExceptionFacts[];
  times: StepTimes;
  groups_made: GroupMade[];
  detached: boolean;
  problems: string[];
  lasting_threads: number[] | null;
  backward: Frame[];
}

export interface StepEntry {
  step: number;
  epoch: number | null;
  batch: number | null;
  loader: number | null;
  at: number;
  issued: Record<string, number>;
  optimizer_steps: number | null;
  backward_step: number | null;
  accumulated_step: number | null;
}

export interface StepTimes {
  steps: number;
  data_s: number;
  before_sync_s: number;
  total_s: number;
  last_s: number;
  slowest_recent_s: number;
}

export interface Collective {
  group: string;
  seq: number;
  op: string;
  sizes: number[][];
  dtypes: string[];
  retired: boolean | null;
  peer: number | null;
  tag: number | null;
  thread_id: number | null;
  thread_name: string;
  frames: Frame[];
  at: number | null;
  step: number | null;
  output_sizes: number[][];
  started: boolean | null;
  via: number;
}

export interface Collectives {
  heads: GroupHead[];
  recent: Collective[];
  open_calls: Collective[];
  source: string;
  answer_cpu_s: number;
  without_gradients: string[];
  tasks: WaitingTask[];
}

export interface Divergence {
  group: string;
  members: number[];
  step: number;
  epoch: number | null;
  batch: number | null;
  counts: Record<string, number>;
  short: number[];
  more: number[];
  seen_at: number;
  exact: boolean;
  doubtful: boolean;
}

export interface GroupHead {
  name: string;
  members: number[];
  description: string;
  backend: string;
  issued: number;
  completed: number;
  sent: number;
  received: number;
  timeout_s: number | null;
  peers: PeerCount[];
}

export interface PeerCount {
  peer: number;
  sent: number;
  received: number;
}

export interface WaitingTask {
  frames: Frame[];
  count: number;
}

export interface DiffCall {
  op: string;
  group: string;
  where: Frame | null;
  via: Frame[];
  times: number;
  open: boolean;
  caller: Frame | null;
}

export interface DiffIteration {
  step: StepName;
  rows: DiffRow[];
}

export interface DiffRow {
  calls: (DiffCall | null)[];
  note: string;
}

export interface RanksDiff {
  lanes: number[][];
  compared: number;
  iterations: DiffIteration[];
}

export interface Bypass {
  where: Frame;
  text: string;
  inner: boolean;
  asks: string;
  of_turn: boolean;
  counts: boolean;
  given: Frame | null;
  given_text: string;
}

export interface CallSite {
  frames: Frame[];
  bypasses: Bypass[];
  loop: LoopFacts | null;
  hashed: Hashed | null;
}

export interface CaptureNote {
  source: string;
  ok: boolean;
  detail: string;
  took_s: number;
  rank: number | null;
}

export interface Excerpt {
  file: string;
  line: number;
  first: number;
  lines: string[];
  changed: boolean;
}

export interface Hashed {
  where: Frame;
  text: string;
}

export interface Job {
  id: string;
  name: string;
  world_size: number | null;
  launcher: string;
  command: string;
  started_at: number;
  nodes_expected: number | null;
}

export interface KeySetter {
  frames: Frame[];
  conditions: Condition[];
  rank: number | null;
  tries: Frame | null;
  swallows: Frame | null;
}

export interface Launched {
  rank: number;
  pid: number;
  started_at: number;
  world_size: number | null;
  command: string;
  environment: Record<string, string>;
  ended_at: number | null;
  exit_code: number | null;
  board: boolean;
}

export interface Link {
  local: string;
  remote: string;
  connections: number;
  sent: number;
  busy_s: number;
  segments: number;
  sent_again: number;
}

export interface NodeFacts {
  host: string;
  ranks: number[];
  silent_s: number;
  clock_offset_s: number;
  gpus: GpuFacts[];
  driver: string;
  shm_total: number | null;
  shm_free: number | null;
  memory_limit: number | null;
  memory_used: number | null;
  oom_kills: number | null;
  master_listener: ProcessFacts | null;
  master_resolves: boolean | null;
  addresses: string[];
  pipes: Pipe[];
  nccl: NcclView | null;
  links: Link[];
}

export interface RankEvidence {
  rank: number;
  host: string;
  pid: number | null;
  reading: Reading | null;
  process: ProcessFacts | null;
  stacks: ThreadStack[];
  earlier_stacks: ThreadStack[];
  collectives: Collectives;
  workers: ProcessEvidence[];
  children: ProcessEvidence[];
  gpu: number | null;
  still_s: number;
  patience_s: number;
  moved: boolean;
  last_output: string;
  crash_trace: string;
  lock_files: LockFile[];
  polled: PolledFile | null;
  ended_at: number | null;
  phases: PhaseSpan[];
  held: string;
  variables: Record<string, string> | null;
}

export interface Snapshot {
  job: Job;
  taken_at: number;
  ranks: RankEvidence[];
  launchers: ProcessEvidence[];
  others: ProcessEvidence[];
  nodes: NodeFacts[];
  divergences: Divergence[];
  warnings: HealthWarning[];
  notes: CaptureNote[];
  last_progress_at: number;
  sampled_twice: boolean;
  launched: Launched[];
  start_patience_s: number;
  excerpts: Excerpt[];
  call_sites: CallSite[];
  switches: Switch[];
  health: JobHealth | null;
  store_keys: StoreKey[];
}

export interface StoreKey {
  frames: Frame[];
  key: string;
  setters: KeySetter[];
}

export interface Switch {
  name: string;
  where: Frame;
  condition: string;
  asks: string;
  asked: Frame;
  last: number;
  leaves: boolean;
}

export interface ForeignMemory {
  host: string;
  gpu: number;
  owner: number;
  rank: number;
  pid: number;
  bytes_held: number;
  line: string;
}

export interface HealthWarning {
  kind: string;
  summary: string;
  ranks: number[];
  evidence: string[];
  fix: string;
  at: number;
}

export interface JobHealth {
  at: number[];
  ranks: number;
  worst: Pace[];
  nodes: Pace[];
  spread: Spread[];
  stragglers: Straggler[];
  data_share: number;
  memory: ForeignMemory[];
}

export interface Pace {
  ranks: string;
  host: string;
  lag_s: number;
  trend: Trend;
  data_share: number;
  data_s: number[];
  forward_s: number[];
  wait_s: number[];
}

export interface Spread {
  phase: string;
  least: number;
  median: number;
  p90: number;
  most: number;
}

export interface Straggler {
  ranks: number[];
  host: string;
  phase: string;
  lag_s: number;
  typical_s: number;
  trend: Trend;
}

export type Trend = "steady" | "growing" | "shrinking";

export interface Incident {
  id: string;
  opened_at: number;
  detected_after_s: number;
  status: Status;
  stage: Stage;
  job: Job;
  verdict: Verdict;
  ranks: RankReport[];
  stack_tree: StackNode[];
  nodes: NodeFacts[];
  launchers: ProcessEvidence[];
  others: ProcessEvidence[];
  divergences: Divergence[];
  warnings: HealthWarning[];
  capture: CaptureNote[];
  closed_at: number | null;
  updated_at: number;
  schema: string;
  hangwatch_version: string;
  taken_at: number;
  last_progress_at: number;
  sampled_twice: boolean;
  launched: Launched[];
  start_patience_s: number;
  excerpts: Excerpt[];
  call_sites: CallSite[];
  switches: Switch[];
  check_next: NextCheck[];
  health: JobHealth | null;
  store_keys: StoreKey[];
}

export interface NextCheck {
  command: string;
  check: string;
  why: string;
}

export interface RankReport {
  rank: number;
  host: string;
  pid: number | null;
  phase: string;
  progress: Progress | null;
  waiting_for: string;
  collectives: Collectives;
  loader: LoaderFacts[];
  exception: ExceptionFacts | null;
  process: ProcessFacts | null;
  stacks: ThreadStack[];
  earlier_stacks: ThreadStack[];
  workers: ProcessEvidence[];
  children: ProcessEvidence[];
  gpu: number | null;
  reading: Reading | null;
  still_s: number;
  patience_s: number;
  moved: boolean;
  last_output: string;
  crash_trace: string;
  lock_files: LockFile[];
  polled: PolledFile | null;
  ended_at: number | null;
  phases: PhaseSpan[];
  held: string;
  variables: Record<string, string> | null;
}

export interface GroupBeat {
  id: string;
  issued: number;
  completed: number;
  sent: number;
  received: number;
}

export interface GroupMembers {
  id: string;
  name: string;
  members: string;
  description: string;
  backend: string;
}

export interface LoaderBeat {
  index: number;
  length: number | null;
  epoch: number;
  drawn: number;
  exhausted: boolean;
  left: boolean;
  inside_next: boolean;
  num_workers: number;
  training: boolean;
}

export interface NodeBatch {
  job: string;
  node: string;
  boot: string;
  sequence: number;
  taken_at: number;
  ranks: RankBeat[];
  hello: NodeHello | null;
  facts: NodeFacts | null;
  warnings: HealthWarning[];
  divergences: Divergence[];
  dropped: number;
  closing: boolean;
  exit_code: number | null;
}

export interface NodeCapture {
  job: string;
  node: string;
  boot: string;
  snapshot: Snapshot;
  request: string;
  groups: GroupMembers[];
}

export interface NodeCommand {
  kind: string;
  request: string;
  reason: string;
}

export interface NodeHello {
  job: Job;
  host: string;
  started_at: number;
  ranks: Identity[];
  groups: GroupMembers[];
  hangwatch_version: string;
  plans: RankPlan[];
}

export interface NodeIncident {
  job: string;
  node: string;
  boot: string;
  incident: Incident;
}

export interface NodeReply {
  accepted: number;
  server_time: number;
  commands: NodeCommand[];
}

export interface RankBeat {
  rank: number;
  pid: number;
  phase: Phase;
  phase_at: number;
  progress: Progress;
  ticker_at: number;
  still_s: number;
  patience_s: number;
  waiting_for: string;
  heads: GroupBeat[];
  loaders: LoaderBeat[];
  times: StepTimes;
  exception: string;
  process_state: string;
  blocked: boolean;
  detached: boolean;
}

export interface RankPlan {
  rank: number;
  loaders: LoaderFacts[];
  groups_made: GroupMade[];
  waits: boolean;
}

export interface NcclCommunicator {
  id: string;
  size: number;
  members: number[];
  launched: NcclLaunched[];
  missing: number[];
  dead: number[];
  errors: Record<string, string>;
  initialising: number[];
  aborted: number[];
}

export interface NcclLaunched {
  op: string;
  count: number;
  number: number;
  ranks: number[];
}

export interface NcclView {
  version: string;
  communicators: number;
  of_note: NcclCommunicator[];
  dead_processes: string[];
}

export interface GpuFacts {
  index: number;
  uuid: string;
  name: string;
  utilization_percent: number | null;
  power_w: number | null;
  power_limit_w: number | null;
  memory_used: number | null;
  memory_total: number | null;
  temperature_c: number | null;
  serial: string | null;
  processes: Record<string, number>;
  errors: string[];
}

export interface LockFile {
  path: string;
  owner_pid: number | null;
  owner_alive: boolean;
  age_s: number;
  inferred: boolean;
  filesystem: string;
  owner: LockOwner | null;
  thread: number | null;
}

export interface LockOwner {
  pid: number;
  role: string;
  rank: number | null;
  command: string;
  started_at: number | null;
  cpu_delta_s: number | null;
}

export interface OpenFile {
  fd: number;
  path: string;
  filesystem: string | null;
}

export interface Pipe {
  path: string;
  readers: number[];
  writers: number[];
}

export interface PolledFile {
  path: string;
  exists: boolean;
  age_s: number;
  held: boolean;
  filesystem: string;
  beside: string;
  beside_age_s: number;
}

export interface ProcessEvidence {
  role: string;
  facts: ProcessFacts;
  stacks: ThreadStack[];
  earlier_stacks: ThreadStack[];
  rank: number | null;
  worker: number | null;
  sample: string | null;
  last_output: string;
  lock_files: LockFile[];
}

export interface ProcessFacts {
  pid: number;
  state: string;
  parent: number | null;
  started_at: number | null;
  command: string;
  cpu_s: number | null;
  cpu_delta_s: number | null;
  io_delta_bytes: number | null;
  threads: number | null;
  resident_bytes: number | null;
  wait_channel: string | null;
  system_call: string | null;
  blocked_on: OpenFile | null;
  descriptors: number | null;
  descriptor_limit: number | null;
  children: number[];
  exit_code: number | null;
  sockets: Socket[];
  standard_pipes: OpenFile[];
  environment: Record<string, string>;
  unreadable: string[];
  io_bytes: number | null;
  written_bytes: number | null;
  written_delta_bytes: number | null;
  unusual_threads: ThreadFacts[];
  waits_for: number | null;
  sleeps_s: number | null;
  times_out_s: number | null;
  has_alarm: boolean;
  private_wait: boolean;
  received_bytes: number | null;
  received_delta_bytes: number | null;
  deadlocked: boolean;
  polling_s: number | null;
}

export interface Socket {
  local: string;
  remote: string;
  state: string;
  unacknowledged: number;
  unread: number;
  retransmits: number;
}

export interface ThreadFacts {
  thread_id: number;
  name: string;
  state: string;
  wait_channel: string | null;
  system_call: string | null;
}

export interface Condition {
  where: Frame;
  text: string;
  asks: string;
}

export interface Frame {
  file: string;
  line: number;
  function: string;
  native: boolean;
}

export interface LoopFacts {
  where: Frame;
  counted: boolean;
  skips: Frame[];
  leaves: Frame[];
  swallows: Frame | null;
  outer: Frame[];
  outer_leaves: Frame[][];
  exits: Frame[];
  asks_store: boolean;
  last: number;
  drained: Frame[];
  of_items: Frame[];
  ways_out: WayOut[];
  endless: boolean;
  bounded: boolean;
  items: string;
  outer_items: string[];
  updates: Condition[];
}

export interface StackNode {
  frame: Frame;
  ranks: number[];
  children: StackNode[];
}

export interface ThreadStack {
  thread_id: number;
  name: string;
  frames: Frame[];
  owns_gil: boolean | null;
  active: boolean | null;
  main: boolean;
  source: string;
  block: string;
  handler: string;
  in_loop: boolean | null;
  loop: LoopFacts | null;
  entered: string[];
  entering: string[];
  each_turn: Frame | null;
  guard: string;
}

export interface WayOut {
  where: Frame;
  text: string;
}

export interface StepName {
  epoch: number | null;
  batch: number | null;
  step: number | null;
}

export type Certainty = "proven" | "likely" | "undetermined";

export type Phase = "start" | "init" | "group" | "ready" | "data" | "step" | "forward" | "backward" | "optimizer" | "eval" | "between" | "destroying" | "destroyed" | "main-done" | "atexit" | "finalizing" | "failed";

export type Stage = "start" | "step" | "data" | "device" | "exit";

export type Status = "hung" | "waiting" | "lingering" | "failed" | "recovered";

export interface Alternative {
  cause: string;
  certainty: Certainty;
  why_not: string;
  open: boolean;
}

export interface ChainEnd {
  rank: number;
  does: string;
  awaits: string;
  pid: number | null;
  where: Frame | null;
  also: number[];
}

export interface Culprit {
  rank: number | null;
  pid: number | null;
  host: string;
  process: string;
  where: Frame | null;
  excerpt: Excerpt | null;
}

export interface Judgement {
  status: Status;
  stage: Stage;
  verdict: Verdict;
}

export interface Verdict {
  cause: string;
  certainty: Certainty;
  summary: string;
  fix: string;
  docs: string;
  culprits: Culprit[];
  victims: number[];
  step: StepName;
  evidence: string[];
  alternatives: Alternative[];
  waits: Wait[];
  details: string[];
  hang: Certainty | null;
  argument: string[];
  diff: RanksDiff | null;
  ends: ChainEnd[];
}

export interface Wait {
  rank: number;
  awaited: number[];
  what: string;
  where: Frame | null;
  also: number[];
}
