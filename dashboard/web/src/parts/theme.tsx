// Light, dark, or as the system has it.

import { useSignal } from "@preact/signals";
import { themeChanged } from "./paint";

type Theme = "system" | "light" | "dark";
const ORDER: Theme[] = ["system", "light", "dark"];
const KEY = "hangwatch-theme";

export function startTheme(): void {
  apply(stored());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);
}

export function ThemeButton() {
  const theme = useSignal(stored());
  const next = (): void => {
    theme.value = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length]!;
    try {
      localStorage.setItem(KEY, theme.value);
    } catch {
      // private windows and files from disk may have no storage: the choice lasts as long as the page
    }
    apply(theme.value);
  };
  const name = theme.value === "system" ? "auto" : theme.value;
  return <button type="button" class="link" onClick={next} aria-label={`Theme: ${name}. Change it.`}>theme: {name}</button>;
}

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return ORDER.includes(found as Theme) ? (found as Theme) : "system";
  } catch {
    return "system";
  }
}

function apply(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  themeChanged();
}
