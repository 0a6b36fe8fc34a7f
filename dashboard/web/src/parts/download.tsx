import type { ComponentChildren } from "preact";

/** A file made in the browser, for pages without a server behind them. */
export function Download({ name, text, title, children }: { name: string; text: () => string; title?: string; children: ComponentChildren }) {
  const save = (): void => {
    const address = URL.createObjectURL(new Blob([text()], { type: "application/json" }));
    const link = Object.assign(document.createElement("a"), { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };
  return <button type="button" title={title} onClick={save}>{children}</button>;
}
