import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Source } from "../src/source";

/** Stands in for the browser's: says which streams are open, and speaks when told. */
class FakeStream extends EventTarget {
  static readonly OPEN = 1;
  static made: FakeStream[] = [];
  readyState = 0;
  onerror: (() => void) | null = null;

  constructor(readonly address: string) {
    super();
    FakeStream.made.push(this);
  }

  speaks(): void {
    this.readyState = FakeStream.OPEN;
    this.dispatchEvent(Object.assign(new Event("hello"), { data: "{}", lastEventId: "" }));
  }

  close(): void {
    this.readyState = 2;
  }
}

const open = (): string[] => FakeStream.made.filter((each) => each.readyState !== 2).map((each) => each.address);

beforeEach(() => {
  FakeStream.made = [];
  vi.stubGlobal("EventSource", FakeStream);
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("a stream is closed when its successor has spoken, however many tabs came in between", () => {
  const heard: string[] = [];
  const source = new Source({ event: (name) => heard.push(name), down: () => {}, locked: () => {} });
  for (const jobs of [["a"], ["a", "b"], ["a", "b", "c"]]) {
    source.want(jobs);
    vi.advanceTimersByTime(100); // each opens a stream, and none of them has spoken yet
  }
  expect(open().length).toEqual(3);
  FakeStream.made[0]!.speaks(); // a stream that has been replaced tells nothing
  expect(heard).toEqual([]);
  FakeStream.made[2]!.speaks();
  expect(heard).toEqual(["hello"]);
  expect(open()).toEqual([FakeStream.made[2]!.address]);
  source.close();
  expect(open()).toEqual([]);
});

it("when the newest stream fails, none of those before it stays open", () => {
  const failures: number[] = [];
  const source = new Source({ event: () => {}, down: (count) => failures.push(count), locked: () => {} });
  source.want(["a"]);
  vi.advanceTimersByTime(100);
  source.want(["b"]);
  vi.advanceTimersByTime(100);
  FakeStream.made[1]!.onerror?.();
  expect(failures).toEqual([0]);
  expect(open()).toEqual([]);
  source.close();
});
