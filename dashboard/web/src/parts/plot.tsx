// A chart of many ranks over time: a few of them stand out, the rest is a grey band of lines.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { timeOfDay } from "../words";
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
}

const HEIGHT = 176;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000];

export function Plot({ at, lines, label, unit, sync, stepped }: Props) {
  const { ref, element, width } = useWidth<HTMLDivElement>();
  const plot = useRef<uPlot | null>(null);
  const look = theme.value;
  const shape = lines.map((line) => `${line.rank} ${line.tone}`).join();
  useEffect(() => {
    if (!element.current || width === 0) return;
    const made = new uPlot(options(lines, width, unit, sync, stepped), data(at, lines), element.current);
    made.root.setAttribute("aria-hidden", "true");
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [shape, look, width > 0, sync, stepped]);
  useEffect(() => plot.current?.setData(data(at, lines)), [at, lines]);
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

function options(lines: Line[], width: number, unit: (value: number) => string, sync: string, stepped: boolean): uPlot.Options {
  const ink = color("ink-2");
  const grid = { stroke: color("rule"), width: 1 };
  const axis = { stroke: ink, font: "12px system-ui, sans-serif", ticks: { stroke: color("rule"), width: 1, size: 4 }, grid };
  const paths = stepped ? uPlot.paths.stepped!({ align: 1 }) : uPlot.paths.linear!();
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: sync }, points: { show: false }, drag: { x: true, y: false } },
    scales: { x: { time: true }, y: { range: (_plot, _min, most) => [0, Math.max(most * 1.1, stepped ? 1 : 0.001)] } },
    axes: [
      { ...axis, size: 30, values: (_plot, splits) => splits.map(timeOfDay), space: 90 },
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
