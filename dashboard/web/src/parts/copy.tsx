import { useSignal } from "@preact/signals";

/** A button that puts `text` on the clipboard and says so. */
export function Copy({ text, what, says = "Copy" }: { text: string; what: string; says?: string }) {
  const done = useSignal("");
  const copy = async (): Promise<void> => {
    done.value = (await copied(text)) ? "Copied" : "Not allowed";
    setTimeout(() => (done.value = ""), 2000);
  };
  return (
    <button type="button" class="copy" aria-label={says === "Copy" ? `Copy ${what}` : says} onClick={() => void copy()}>
      <span aria-live="polite">{done.value || says}</span>
    </button>
  );
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedOldWay(text); // over plain http, and from disk, there is no clipboard object
  }
}

function copiedOldWay(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  document.body.append(area);
  area.select();
  const ok = document.execCommand("copy");
  area.remove();
  return ok;
}
