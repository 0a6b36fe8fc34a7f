// A stack's frames, innermost first, the user's own marked.

import { isUser } from "../model/frames";
import { Nothing } from "../parts/bits";
import type { Frame } from "../records";
import { place } from "../words";

export function Frames({ frames }: { frames: Frame[] }) {
  if (!frames.length) return <Nothing>no frames</Nothing>;
  return (
    <ol class="frames">
      {frames.map((frame, index) => (
        <li key={index} class={frame.native ? "native" : isUser(frame) ? "user" : "library"} title={frame.file}>
          <code class="f">{frame.function}</code> <span class="p">{place(frame)}</span>
        </li>
      ))}
    </ol>
  );
}
