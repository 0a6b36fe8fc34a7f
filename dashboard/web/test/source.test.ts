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

it("of many streams that replace each other two are open: the last that has spoken, and the newest", () => {
  const heard: string[] = [];
  const source = new Source({ event: (name) => heard.push(name), down: () => {}, locked: () => {} });
  source.want(["a"]);
  vi.advanceTimersByTime(100);
  FakeStream.made[0]!.speaks();
  for (const jobs of [["a", "b"], ["b"], ["b", "c"], ["c"], ["c", "d"], ["d"], ["d", "e"]]) {
    source.want(jobs);
    vi.advanceTimersByTime(100); // each opens a stream, and none of them has spoken yet
  }
  expect(open()).toEqual([FakeStream.made[0]!.address, FakeStream.made[7]!.address]);
  FakeStream.made[0]!.speaks(); // a stream that has been replaced tells nothing
  expect(heard).toEqual(["hello"]);
  FakeStream.made[7]!.speaks();
  expect(heard).toEqual(["hello", "hello"]);
  expect(open()).toEqual([FakeStream.made[7]!.address]);
  source.close();
  expect(open()).toEqual([]);
});

it("a stream that has not spoken is closed with its successor's beginning", () => {
  const source = new Source({ event: () => {}, down: () => {}, locked: () => {} });
  for (const jobs of [["a"], ["b"]]) {
    source.want(jobs);
    vi.advanceTimersByTime(100);
  }
  expect(open()).toEqual([FakeStream.made[1]!.address]);
  source.close();
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
