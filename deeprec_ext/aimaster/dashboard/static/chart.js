// A line chart over time: axes, values under the pointer or the arrow keys, gaps, marks, a legend that hides lines.

import { h, svg, attribute } from "./dom.js";
import { clock, moment } from "./format.js";

const LEFT = 56, RIGHT = 12, TOP = 18, BOTTOM = 22, NEAR = 4;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800];
export const MARKS = { scaling: "▲", failure: "✕", decision: "◆" };

/** Ticks at round values from 0 (or below) to beyond the highest. */
export function niceTicks(highest, wanted = 5) {
  const raw = (highest || 1) / wanted;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((one) => one >= raw * 0.999);
  const ticks = [];
  for (let value = 0; ; value += step) {
    ticks.push(value);
    if (value >= highest) return ticks;
  }
}

function timeTicks(from, to, width) {
  const step = STEPS.find((one) => (to - from) / one <= Math.max(2, width / 75)) || 7 * 86400;
  const shift = new Date(1000 * from).getTimezoneOffset() * 60;
  const ticks = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) ticks.push(at);
  return [ticks, step];
}

export class Chart {
  /**
   * @param parent element that holds it
   * @param options `title` for screen readers, `format` of values, `height`, `moved(time | null)` when the pointer moves
   */
  constructor(parent, { title, format, height = 190, moved = null }) {
    this.parent = parent;
    this.format = format;
    this.height = height;
    this.moved = moved;
    this.lines = [];
    this.marks = [];
    this.hidden = new Set();
    this.window = [0, 1];
    this.at = null;
    this.note = "loading …";
    this.legend = h("ul", { class: "legend" });
    this.picture = svg("svg", { role: "img", tabindex: "0", "aria-label": title });
    this.tip = h("div", { class: "tip", hidden: true });
    this.said = h("span", { class: "hidden", "aria-live": "polite" });
    parent.replaceChildren(this.legend, this.picture, this.tip, this.said);
    this.picture.addEventListener("pointermove", (event) => this.point(this.timeAt(event.clientX)));
    this.picture.addEventListener("pointerleave", () => this.point(null));
    this.picture.addEventListener("blur", () => this.point(null));
    this.picture.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(parent);
  }

  /** `lines`: {name, colour, dash, fill, points: [[unix, mean, highest]]}; `marks`: {kind, time, until, text}. */
  set(lines, marks, [from, to], note = "") {
    Object.assign(this, { lines, marks, window: [from, to], note });
    this.drawLegend();
    this.draw();
  }

  // ------------------------------------------------------------------------------------------------ drawing

  get width() {
    return Math.max(260, this.parent.clientWidth);
  }

  x(time) {
    const [from, to] = this.window;
    return LEFT + ((time - from) / (to - from)) * (this.width - LEFT - RIGHT);
  }

  y(value) {
    return TOP + (1 - value / this.top) * (this.height - TOP - BOTTOM);
  }

  get isEmpty() {
    return !this.shown.some((line) => line.points.length);
  }

  get shown() {
    return this.lines.filter((line) => !this.hidden.has(line.name));
  }

  draw() {
    const { width, height } = this;
    const [from, to] = this.window;
    const ticks = niceTicks(this.highest());
    this.top = ticks[ticks.length - 1];
    const parts = [];
    for (const value of ticks) {
      const y = this.y(value);
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
      if (!this.isEmpty) parts.push(svg("text", { x: LEFT - 7, y: y + 4, "text-anchor": "end" }, this.format(value)));
    }
    const [times, step] = timeTicks(from, to, width - LEFT - RIGHT);
    for (const time of times) {
      const label = step >= 86400 ? moment(time).split(" ").slice(0, 2).join(" ") : clock(time, step < 60);
      parts.push(svg("text", { x: this.x(time), y: height - 5, "text-anchor": "middle" }, label));
    }
    parts.push(...this.drawMarks());
    const clip = `clip-${this.parent.id || "chart"}`;
    parts.push(svg("clipPath", { id: clip }, svg("rect", { x: LEFT, y: 0, width: width - LEFT - RIGHT, height })));
    const curves = svg("g", { "clip-path": `url(#${clip})` });
    for (const line of this.shown) {
      if (line.fill) curves.append(this.area(line));
      const path = svg("path", { class: "curve", d: this.path(line.points), "stroke-dasharray": line.dash });
      path.style.stroke = line.colour;
      curves.append(path);
    }
    parts.push(curves, (this.cross = svg("g")));
    if (this.isEmpty) {
      parts.push(svg("text", { class: "empty", x: LEFT + (width - LEFT) / 2, y: height / 2 }, this.note || "nothing measured in this time yet"));
    }
    attribute(this.picture, "viewBox", `0 0 ${width} ${height}`);
    this.picture.replaceChildren(...parts);
    this.drawCross();
  }

  highest() {
    const [from] = this.window;
    let highest = 0;
    for (const line of this.shown) for (const [time, mean] of line.points) if (time >= from && mean > highest) highest = mean;
    return highest || 1;
  }

  path(points) {
    return points.map(([time, mean], index) => `${interrupted(points, index) ? "M" : "L"}${this.x(time).toFixed(1)} ${this.y(mean).toFixed(1)}`).join("");
  }

  area(line) {
    const floor = this.y(0).toFixed(1);
    let d = "", last = null;
    for (const [index, [time, mean]] of line.points.entries()) {
      const at = `${this.x(time).toFixed(1)} `;
      if (interrupted(line.points, index)) d += `${last === null ? "" : `L${this.x(last).toFixed(1)} ${floor}Z`}M${at}${floor}`;
      d += `L${at}${this.y(mean).toFixed(1)}`;
      last = time;
    }
    const path = svg("path", { class: "area", d: last === null ? "" : `${d}L${this.x(last).toFixed(1)} ${floor}Z` });
    path.style.fill = line.colour;
    return path;
  }

  drawMarks() {
    const [from, to] = this.window;
    const parts = [];
    for (const mark of this.marks) {
      if ((mark.until || mark.time) < from || mark.time > to) continue;
      const x = this.x(Math.max(from, mark.time));
      const base = this.height - BOTTOM;
      if (mark.until > mark.time) {
        const end = this.x(Math.min(to, mark.until));
        parts.push(svg("rect", { class: "band", x, y: TOP, width: Math.max(1, end - x), height: base - TOP }));
      }
      parts.push(svg("line", { class: `tick ${mark.kind}`, x1: x, x2: x, y1: TOP, y2: base }));
      parts.push(svg("text", { class: `mark ${mark.kind}`, x, y: TOP - 5, "data-mark": mark.kind }, MARKS[mark.kind], svg("title", {}, mark.text)));
    }
    return parts;
  }

  /** Only when it has changed: a button that is made anew loses the focus. */
  drawLegend() {
    const signs = JSON.stringify(this.lines.map((line) => [line.name, line.colour, this.hidden.has(line.name)]));
    if (signs === this.signs) return;
    this.signs = signs;
    const lines = this.lines.length < 2 ? [] : this.lines;
    this.legend.replaceChildren(...lines.map((line) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = line.colour;
      return h("li", {}, h("button", {
        type: "button", "aria-pressed": String(!this.hidden.has(line.name)), title: "show or hide this line",
        onclick: () => this.toggle(line.name), onpointerenter: () => this.stress(line.name), onpointerleave: () => this.stress(null),
      }, swatch, line.name));
    }));
  }

  toggle(name) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    const focused = [...this.legend.querySelectorAll("button")].indexOf(document.activeElement);
    this.drawLegend();
    if (focused >= 0) this.legend.querySelectorAll("button")[focused].focus();
    this.draw();
  }

  stress(name) {
    const curves = this.picture.querySelectorAll(".curve");
    this.shown.forEach((line, index) => {
      curves[index].classList.toggle("dim", name !== null && line.name !== name);
      curves[index].classList.toggle("strong", line.name === name);
    });
  }

  // ------------------------------------------------------------------------------------------------ looking

  timeAt(clientX) {
    const box = this.picture.getBoundingClientRect();
    const inside = ((clientX - box.left) / box.width) * this.width;
    const [from, to] = this.window;
    const time = from + ((inside - LEFT) / (this.width - LEFT - RIGHT)) * (to - from);
    return time < from || time > to ? null : time;
  }

  key(event) {
    const points = this.shown.flatMap((line) => line.points.map((point) => point[0]));
    const times = [...new Set([...points, ...this.marks.map((mark) => mark.time)])].filter((t) => t >= this.window[0]).sort((a, b) => a - b);
    const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") this.point(null);
    if (move === undefined || !times.length) return;
    event.preventDefault();
    let index = this.at === null ? times.length - 1 : times.findIndex((time) => time >= this.at - 1e-6) + move;
    index = Math.min(times.length - 1, Math.max(0, index));
    this.point(times[index]);
    this.said.textContent = this.tip.textContent;
  }

  /** Shows the values at this time; tells `moved`, so that other charts follow. */
  point(time) {
    this.follow(time);
    if (this.moved) this.moved(time);
  }

  follow(time) {
    this.at = time;
    this.drawCross();
  }

  drawCross() {
    if (!this.cross) return;
    const { at: time } = this;
    if (time === null || time < this.window[0] || time > this.window[1]) {
      this.cross.replaceChildren();
      this.tip.hidden = true;
      return;
    }
    const x = this.x(time);
    const dots = [], entries = [];
    for (const line of this.shown) {
      const index = nearest(line.points, time), point = line.points[index];
      if (!point || Math.abs(point[0] - time) > Math.max(longest(line.points, index), (this.window[1] - this.window[0]) / 200)) continue;
      const dot = svg("circle", { cx: this.x(point[0]), cy: this.y(point[1]), r: 3.5 });
      dot.style.fill = line.colour;
      dots.push(dot);
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = line.colour;
      entries.push([point[1], h("div", { class: "entry" }, swatch, line.name, h("b", {}, this.format(point[1])))]);
    }
    entries.sort((a, b) => b[0] - a[0]);
    const close = ((this.window[1] - this.window[0]) * 7) / this.width;
    const marks = this.marks.filter((mark) => mark.time - close <= time && time <= (mark.until || mark.time) + close).slice(0, 4)
      .map((mark) => h("div", { class: "event" }, h("span", { class: `mark ${mark.kind}` }, `${MARKS[mark.kind]} `), mark.text));
    this.cross.replaceChildren(svg("line", { class: "cross", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM }), ...dots);
    this.tip.replaceChildren(h("div", { class: "when" }, moment(time)), ...entries.map((entry) => entry[1]), ...marks);
    this.tip.hidden = !entries.length && !marks.length;
    const scale = this.picture.getBoundingClientRect().width / this.width;
    const right = x * scale > this.parent.clientWidth / 2;
    this.tip.style.left = right ? "auto" : `${x * scale + 12}px`;
    this.tip.style.right = right ? `${this.parent.clientWidth - x * scale + 12}px` : "auto";
    this.tip.style.top = `${this.picture.offsetTop + TOP}px`;
  }
}

/** Seconds that a line may be without a value there: four times the usual step around that point. Old values stand in larger steps. */
function longest(points, index) {
  const near = [];
  for (let at = Math.max(1, index - NEAR); at <= Math.min(points.length - 1, index + NEAR); at++) near.push(points[at][0] - points[at - 1][0]);
  near.sort((a, b) => a - b);
  return Math.max(6, 4 * (near[(near.length - 1) >> 1] || 0));
}

/** Whether a line begins anew at that point. */
export const interrupted = (points, index) => {
  const gap = index ? points[index][0] - points[index - 1][0] : Infinity;
  return gap > 6 && gap > longest(points, index);
};

/** Index of the point at or next to this time, by bisection; -1 where there is none. */
function nearest(points, time) {
  let low = 0, high = points.length - 1;
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < time) low = middle + 1;
    else high = middle;
  }
  const before = points[low - 1];
  return before && time - before[0] < points[low][0] - time ? low - 1 : low;
}
