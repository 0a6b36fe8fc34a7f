// A sign for every state: the second channel besides its colour.

const PATHS: Record<string, string> = {
  hung: "M8 1 15 14H1Z",
  failed: "M3 3 13 13M13 3 3 13",
  lingering: "M4 3h8M4 13h8M4.5 3c0 5 7 5 7 10M11.5 3c0 5-7 5-7 10",
  waiting: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM8 5v3.5l2.5 1.5",
  recovered: "M3 8a5 5 0 1 1 1.6 3.7M3 12.5V9h3.5",
  running: "M5 3l8 5-8 5Z",
  starting: "M5 3l8 5-8 5Z",
  finished: "M3 8.5 6.5 12 13 4.5",
  silent: "M2 8h2M7 8h2M12 8h2",
};
const FILLED = new Set(["hung", "running"]);

export function StateIcon({ state }: { state: string }) {
  return (
    <svg class={`icon ${FILLED.has(state) ? "filled" : ""}`} viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path d={PATHS[state] ?? PATHS["silent"]!} />
    </svg>
  );
}
