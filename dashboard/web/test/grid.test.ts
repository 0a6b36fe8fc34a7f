import { describe, expect, it } from "vitest";
import { cellAt, layGrid, neighbour } from "../src/model/grid";
import { lagLevel, numberOf } from "../src/parts/cells";

describe("the grid", () => {
  const two = layGrid(["a", "b"], [0, 0, 0, 0, 1, 1, 1, 1], 1000);
  it("groups ranks by node", () => {
    expect(two.blocks.map((block) => [block.node, block.count])).toEqual([["a", 4], ["b", 4]]);
    expect(new Set(two.cells.map((cell) => cell.y)).size).toBe(1);
  });
  it("knows which cell is where", () => {
    two.cells.forEach((cell, index) => expect(cellAt(two, cell.x + 5, cell.y + 5)).toBe(index));
    expect(cellAt(two, 5, 2)).toBe(-1);
  });
  it("fits any width", () => {
    for (const room of [300, 700, 1200]) {
      const layout = layGrid(Array.from({ length: 40 }, (_, node) => `n${node}`), Array.from({ length: 320 }, (_, rank) => Math.floor(rank / 8)), room);
      expect(Math.max(...layout.cells.map((cell) => cell.x + layout.cellWidth))).toBeLessThanOrEqual(room);
    }
  });
  it.each([[52, 38, 34], [42, 26, 29]])("has room for a number of any digits beside the mark in a cell of %i by %i", (_width, height, mark) => {
    for (let digits = 1; digits <= 5; digits++) {
      const { size, left } = numberOf(height, digits);
      expect(left + 0.6 * size * digits).toBeLessThan(mark); // of a digit in bold sans serif
    }
  });
  it("holds ten thousand ranks on a screen or two", () => {
    const layout = layGrid(Array.from({ length: 1250 }, (_, node) => `n${node}`), Array.from({ length: 10_000 }, (_, rank) => Math.floor(rank / 8)), 1200);
    expect(layout.height).toBeLessThan(1200);
    expect(layout.order).toHaveLength(10_000);
  });
  it("leads the arrow keys from cell to cell", () => {
    const layout = layGrid(["a"], new Array(16).fill(0), 1000);
    expect(neighbour(layout, 0, "ArrowRight")).toBe(1);
    expect(neighbour(layout, 0, "ArrowLeft")).toBe(0);
    expect(neighbour(layout, 2, "ArrowDown")).toBe(10);
    expect(neighbour(layout, 10, "ArrowUp")).toBe(2);
    expect(neighbour(layout, 3, "End")).toBe(15);
    expect(neighbour(layout, -1, "ArrowDown")).toBe(0);
  });
});

it("has seven levels of lag", () => {
  expect([0, 1, 1000].map(lagLevel)).toEqual([0, 1, 6]);
});
