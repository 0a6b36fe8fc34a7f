// The keyboard, besides what links, buttons and the rank grid do by themselves.

/** What the keys do, as the page's list of them says it. */
export const SAYS: readonly (readonly [keys: readonly string[], says: string])[] = [
  [["/"], "search, in a list of jobs or incidents"],
  [["[", "]"], "the view before, the view after"],
  [[",", "."], "the rank before, the rank after, on the page of a rank"],
  [["←", "↑", "→", "↓"], "from rank to rank, in the rank grid"],
  [["Enter"], "open the rank, in the rank grid"],
  [["?"], "this list"],
];

export function listenToKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    const act = KEYS[event.key];
    if (act && act()) event.preventDefault();
  });
}

const KEYS: Record<string, () => boolean> = {
  "/": () => focused(document.querySelector<HTMLElement>("input[type=search]")),
  "?": () => clicked(document.querySelector<HTMLElement>("button[data-keys]")),
  "[": () => turned(-1),
  "]": () => turned(1),
  ",": () => clicked(document.querySelector<HTMLElement>("nav[aria-label='Other ranks'] a[rel=prev]")),
  ".": () => clicked(document.querySelector<HTMLElement>("nav[aria-label='Other ranks'] a[rel=next]")),
};

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function turned(by: number): boolean {
  const links = [...document.querySelectorAll<HTMLElement>("nav.views a")];
  const here = links.findIndex((link) => link.hasAttribute("aria-current"));
  return here >= 0 && clicked(links[here + by] ?? null);
}

function clicked(link: HTMLElement | null): boolean {
  link?.click();
  return link !== null;
}

function focused(field: HTMLElement | null): boolean {
  field?.focus();
  return field !== null;
}
