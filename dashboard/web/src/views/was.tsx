// What a job was judged before it ended, where its state tells only how it ended.

import type { JobSummary } from "../api";

export function Was({ job }: { job: Pick<JobSummary, "closed_at" | "incident" | "state"> }) {
  const status = job.incident?.status;
  if (job.closed_at === null || !status || status === job.state || status === "recovered") return null;
  return <span class="tag">{status === "hung" ? "was hung" : status === "lingering" ? "lingered" : status}</span>;
}
