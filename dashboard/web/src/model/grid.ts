// Where every rank's cell is: ranks in blocks by node, cells as large as the number of ranks allows.

export interface Cell {
  x: number;
  y: number;
}

export interface Block {
  node: string;
  x: number;
  y: number;
  width: number;
  first: number; // index of the node's first cell in `order`
  count: number;
}

export interface GridLayout {
  cellWidth: number;
  cellHeight: number;
  cells: Cell[]; // by index of the column, as the ranks came
  blocks: Block[];
  order: number[]; // indexes of the columns, in the order in which the cells stand
  width: number;
  height: number;
  labels: boolean;
}

const SIZES = [
  { most: 64, width: 52, height: 38, gap: 3 },
  { most: 256, width: 42, height: 26, gap: 2 },
  { most: 2048, width: 16, height: 16, gap: 2 },
  { most: Infinity, width: 9, height: 9, gap: 1 },
];
const LABEL = 18;
const MOST_LABELS = 160;

/** `node` is the node's index of each rank, in order of rank. */
export function layGrid(nodes: readonly string[], node: readonly number[], room: number): GridLayout {
  const size = SIZES.find((size) => node.length <= size.most)!;
  const members = nodes.map(() => [] as number[]);
  node.forEach((index, column) => members[index]?.push(column));
  const filled = members.map((columns, index) => ({ index, columns })).filter((entry) => entry.columns.length);
  const labels = filled.length <= MOST_LABELS;
  const stepX = size.width + size.gap;
  const stepY = size.height + size.gap;
  const gap = size.gap * 2 + 6;
  const fits = Math.max(1, Math.floor((room + size.gap) / stepX));
  const largest = Math.max(1, ...filled.map((entry) => entry.columns.length));
  const across = Math.min(largest <= 8 ? largest : largest <= 64 ? 8 : 32, fits);
  const layout: GridLayout = {
    cellWidth: size.width, cellHeight: size.height, cells: new Array(node.length), blocks: [], order: [], width: room, height: 0, labels,
  };
  const head = labels ? LABEL : 0;
  const blockWidth = across * stepX - size.gap;
  let x = 0;
  let y = 0;
  let tallest = 0;
  for (const { index, columns } of filled) {
    if (x > 0 && x + blockWidth > room) {
      x = 0;
      y += tallest + (labels ? 10 : size.gap + 1);
      tallest = 0;
    }
    layout.blocks.push({ node: nodes[index]!, x, y, width: blockWidth, first: layout.order.length, count: columns.length });
    columns.forEach((column, place) => {
      layout.cells[column] = { x: x + (place % across) * stepX, y: y + head + Math.floor(place / across) * stepY };
      layout.order.push(column);
    });
    tallest = Math.max(tallest, head + Math.ceil(columns.length / across) * stepY - size.gap);
    x += blockWidth + gap;
  }
  layout.height = y + tallest;
  return layout;
}

/** The index of the cell at a point, -1 for none. */
export function cellAt(layout: GridLayout, x: number, y: number): number {
  const { cellWidth, cellHeight } = layout;
  return layout.cells.findIndex((cell) => x >= cell.x - 1 && x <= cell.x + cellWidth + 1 && y >= cell.y - 1 && y <= cell.y + cellHeight + 1);
}

/** Where an arrow key leads from a cell: along the order sideways, to the nearest cell above or below else. */
export function neighbour(layout: GridLayout, column: number, key: string): number {
  const position = layout.order.indexOf(column);
  if (position < 0) return layout.order[0] ?? -1;
  if (key === "Home") return layout.order[0]!;
  if (key === "End") return layout.order.at(-1)!;
  if (key === "ArrowLeft") return layout.order[Math.max(0, position - 1)]!;
  if (key === "ArrowRight") return layout.order[Math.min(layout.order.length - 1, position + 1)]!;
  const from = layout.cells[column]!;
  const sign = key === "ArrowUp" ? -1 : 1;
  let best = column;
  let nearest = Infinity;
  for (const candidate of layout.order) {
    const cell = layout.cells[candidate]!;
    const down = (cell.y - from.y) * sign;
    if (down <= 0) continue;
    const distance = down * 4 + Math.abs(cell.x - from.x);
    if (distance < nearest) [nearest, best] = [distance, candidate];
  }
  return best;
}
