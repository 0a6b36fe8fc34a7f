// A chart of many ranks over time: a few of them stand out, the rest is a grey band of lines.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { STRIDES, type Span } from "../model/span";
import { tickMoment } from "../words";
import { color, theme } from "./paint";
import { useWidth } from "./width";

export interface Line {
  rank: number;
  values: (number | null)[];
  tone: string; // name of a colour; "" for one of many
  dash: number[];
}

interface Props {
  at: number[];
  lines: Line[];
  label: string;
  unit: (value: number) => string;
  sync: string;
  stepped: boolean;
  span: Span | null; // null: all there is
  onSpan: (span: Span | null) => void; // the reader has dragged over a part, or wants all again
}

const HEIGHT = 176;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000];

export function Plot(props: Props) {
  const { at, lines, label, sync, stepped, span } = props;
  const newest = useRef(props);
  newest.current = props;
  const { ref, element, width } = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const look = theme.value;
  const shape = lines.map((line) => `${line.rank} ${line.tone}`).join();
  useEffect(() => {
    if (!element.current || width === 0) return;
    const made = new uPlot(options(lines, width, newest), data(at, lines), element.current);
    made.root.setAttribute("aria-hidden", "true");
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [shape, look, width > 0, sync, stepped]);
  useEffect(() => plot.current?.setData(data(at, lines)), [at, lines, span?.from, span?.to]);
  useEffect(() => {
    if (width) plot.current?.setSize({ width, height: HEIGHT });
  }, [width]);
  return <div ref={ref} class="plot" role="img" aria-label={label} />;
}

function data(at: number[], lines: Line[]): uPlot.AlignedData {
  return [at, ...lines.map((line) => line.values)] as uPlot.AlignedData;
}

/** The width of an axis whose longest label is "2 min 30 s" or "5". */
function roomFor(labels: string[] | null): number {
  const longest = Math.max(0, ...(labels ?? []).map((label) => label.length));
  return Math.max(58, 7 * longest + 16);
}

/** A part that was dragged over becomes what all charts show. */
function selected(plot: uPlot, onSpan: Props["onSpan"]): void {
  const { left, width } = plot.select;
  if (width < 4) return;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  onSpan({ from: plot.posToVal(left, "x"), to: plot.posToVal(left + width, "x") });
}

function options(lines: Line[], width: number, newest: { current: Props }): uPlot.Options {
  const { unit, sync, stepped } = newest.current;
  const ink = color("ink-2");
  const grid = { stroke: color("rule"), width: 1 };
  const axis = { stroke: ink, font: "12px system-ui, sans-serif", ticks: { stroke: color("rule"), width: 1, size: 4 }, grid };
  const paths = stepped ? uPlot.paths.stepped!({ align: 1 }) : uPlot.paths.linear!();
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: sync }, points: { show: false }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => (newest.current.onSpan(null), null) } },
    hooks: { setSelect: [(plot) => selected(plot, newest.current.onSpan)] },
    padding: [null, 28, null, null], // room for the last label
    scales: { x: { time: true, range: (_plot, least, most) => (newest.current.span ? [newest.current.span.from, newest.current.span.to] : [least, most]) }, y: { range: (_plot, _min, most) => [0, Math.max(most * 1.1, stepped ? 1 : 0.001)] } },
    axes: [
      { ...axis, size: 30, incrs: STRIDES, values: (_plot, splits, _axis, _space, stride) => splits.map((at) => tickMoment(at, stride)), space: 82 },
      { ...axis, size: (_plot, labels) => roomFor(labels), values: (_plot, splits) => splits.map(unit), ...(stepped && { incrs: WHOLE }) },
    ],
    series: [
      {},
      ...lines.map((line): uPlot.Series => ({
        label: `rank ${line.rank}`,
        stroke: color(line.tone || "ink-3"),
        width: line.tone ? 2 : 1,
        alpha: line.tone ? 1 : 0.45,
        dash: line.dash,
        paths,
        points: { show: false },
        spanGaps: true,
      })),
    ],
  };
}
