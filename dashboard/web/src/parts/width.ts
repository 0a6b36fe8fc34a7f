import { useCallback, useRef, useState } from "preact/hooks";

/** The width that an element has got, followed when it changes; 0 before it is known. `ref` may be given late. */
export function useWidth<T extends HTMLElement>() {
  const [width, setWidth] = useState(0);
  const element = useRef<T | null>(null);
  const observer = useRef<ResizeObserver | null>(null);
  const ref = useCallback((found: T | null) => {
    element.current = found;
    observer.current?.disconnect();
    if (!found) return;
    observer.current = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.current.observe(found);
    setWidth(Math.floor(found.clientWidth));
  }, []);
  return { ref, element, width };
}
