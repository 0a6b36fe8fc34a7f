import { createHash } from "node:crypto";
import { defineConfig, type Plugin } from "vite";

const STATIC = "../hangwatch_dashboard/static";

/** Puts script and style into incident.html, with a policy that allows these two, by hash, and nothing else. */
function oneFile(): Plugin {
  return {
    name: "one-file",
    enforce: "post",
    generateBundle(_options, bundle) {
      const all = Object.values(bundle);
      const page = all.find((part) => part.fileName.endsWith(".html"));
      if (!page || page.type !== "asset") throw new Error("no HTML was built");
      const script = all.flatMap((part) => (part.type === "chunk" ? [part.code] : [])).join("\n");
      const style = all
        .flatMap((part) => (part.type === "asset" && part.fileName.endsWith(".css") ? [String(part.source)] : []))
        .join("\n");
      const code = script.replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
      const policy =
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; " +
        `script-src ${hash(code)}; style-src ${hash(style)}`;
      const head = `<meta http-equiv="Content-Security-Policy" content="${policy}"><style>${style}</style>`;
      const html = String(page.source)
        .replace(/<script[^>]*src=[^>]*><\/script>\s*/g, "")
        .replace(/<link[^>]*(stylesheet|modulepreload)[^>]*>\s*/g, "")
        .replace("<!--head-->", () => head)
        .replace("<!--script-->", () => `<script>${code}</script>`);
      for (const part of all) delete bundle[part.fileName];
      this.emitFile({ type: "asset", fileName: "incident.html", source: html });
    },
  };
}

function hash(text: string): string {
  return `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;
}

export default defineConfig(({ mode }) => ({
  base: "/",
  plugins: mode === "file" ? [oneFile()] : [],
  build: {
    outDir: STATIC,
    emptyOutDir: mode !== "file",
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    reportCompressedSize: true,
    rollupOptions: {
      input: mode === "file" ? "incident.html" : "index.html",
      output: mode === "file" ? { format: "iife" as const } : {},
    },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8470" } },
  test: { include: ["test/**/*.test.ts"] },
}));
