// The verdict as Markdown, to be pasted into an issue or a chat; the same as `hangwatch report --markdown` writes.

import type { Job, Verdict } from "../records";
import { cause, culprit, title } from "../words";

const MOST = 10;

/** `headline` is "HUNG, proven, 3.1 s after the last step"; `link` where the rest stands, "" for nowhere. */
export function markdown(verdict: Verdict, headline: string, job: Pick<Job, "name" | "id">, link: string): string {
  const parts = [`**${plain(headline)}** in \`${code(job.name || job.id)}\``, `> ${plain(verdict.summary)}`, rows(verdict), excerpt(verdict), list("Evidence", verdict.evidence), ruledOut(verdict), link && `More: <${link}>`];
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

function rows(verdict: Verdict): string {
  const name = title(verdict.cause);
  const lines = [`- **Cause:** ${plain(name)}${name === verdict.cause ? "" : ` (\`${code(verdict.cause)}\`)`}, ${cause(verdict.certainty)}`];
  for (const who of verdict.culprits.slice(0, MOST)) {
    const at = who.where ? ` at \`${code(`${who.where.file}:${who.where.line}`)}\`` : "";
    lines.push(`- **Who:** ${plain(culprit(who))}${at}`);
  }
  if (verdict.culprits.length > MOST) lines.push(`- and ${verdict.culprits.length - MOST} more`);
  if (verdict.fix) lines.push(`- **Fix:** ${plain(verdict.fix)}`);
  return lines.join("\n");
}

function excerpt(verdict: Verdict): string {
  const found = verdict.culprits.find((who) => who.excerpt)?.excerpt;
  if (!found) return "";
  const lines = found.lines.map((line, index) => `${found.first + index === found.line ? ">" : " "} ${String(found.first + index).padStart(4)} ${line.replaceAll("```", "'''")}`);
  return `\`\`\`python\n${lines.join("\n")}\n\`\`\``;
}

function list(name: string, sentences: readonly string[]): string {
  return sentences.length ? `**${name}**\n\n${sentences.slice(0, MOST).map((sentence) => `- ${plain(sentence)}`).join("\n")}` : "";
}

function ruledOut(verdict: Verdict): string {
  const others = verdict.alternatives.slice(0, MOST).map((other) => `- \`${code(other.cause)}\`: ${plain(other.why_not)}`);
  return others.length ? `**Ruled out**\n\n${others.join("\n")}` : "";
}

/** A sentence on one line without markup and without mentions, except `code`. */
function plain(text: string): string {
  return text.replace(/\s+/g, " ").replace(/[\\*<>[\]|#]/g, (sign) => `\\${sign}`).replaceAll("@", "@\u200b");
}

function code(text: string): string {
  return text.replace(/\s+/g, " ").replaceAll("`", "'");
}
