// Throughput and step time over time, and the marks of what happened.

import { $, get, segments, text } from "./dom.js";
import * as f from "./format.js";
import { Chart } from "./chart.js";

const WINDOWS = [[300, "5 min"], [900, "15 min"], [3600, "1 h"], [6 * 3600, "6 h"], [86400, "24 h"], [0, "all"]];
const POINTS = 500, LINES_MAX = 8;
export const COLOURS = ["var(--trainer)", "light-dark(#b8a020,#ddcc55)", "light-dark(#2aa5c9,#66ccee)", "var(--ps)", "light-dark(#8866cc,#b79cf0)", "light-dark(#8a6d3b,#c9a872)", "light-dark(#e39ab0,#f5b8cb)", "light-dark(#5b8f8a,#8cc7c0)"];

export const params = (subjects, metrics, since, points = POINTS) =>
  new URLSearchParams([...subjects.map((one) => ["subject", one]), ...metrics.map((one) => ["metric", one]), ["since", since.toFixed(3)], ["points", points]]);

export const points = (line) => line.times.map((time, index) => [time, line.means[index], line.highest[index]]);

export class OverTime {
  /** @param loaded called with the first points of the job's examples per second */
  constructor(loaded) {
    this.loaded = loaded;
    this.seconds = 900;
    this.unit = $("throughput-of");
    this.marks = [];
    this.throughput = new Chart($("throughput"), { title: "Throughput over time", format: f.short, moved: (time) => this.steps.follow(time) });
    this.steps = new Chart($("step-times"), { title: "Step time over time", format: f.seconds, moved: (time) => this.throughput.follow(time) });
    this.reset();
    segments($("windows"), WINDOWS, this.seconds, (seconds) => {
      this.seconds = seconds;
      this.reset();
      this.load();
    });
    this.unit.addEventListener("change", () => {
      this.reset();
      this.load();
    });
  }

  reset() {
    this.lines = new Map();
    this.note = "loading …";
    this.known = 0;
    this.loadedAt = 0;
  }

  setMarks(marks) {
    this.marks = marks;
    this.draw();
  }

  /** Each second; asks the AIMaster less often where the window is long. */
  update(live) {
    this.live = live;
    const every = this.seconds && this.seconds <= 900 ? 2 : this.seconds && this.seconds <= 3600 ? 6 : 15;
    if (document.hidden || live.time - this.loadedAt < every) return;
    this.loadedAt = live.time;
    this.load();
  }

  window() {
    const now = this.live ? this.live.time : Date.now() / 1000;
    const began = this.live ? now - this.live.job.seconds : now - 60;
    return [this.seconds ? Math.max(now - this.seconds, Math.min(began, now - 60)) : began, now];
  }

  /** The chief, and the slowest trainers. */
  trainers() {
    const all = this.live ? this.live.trainers.filter((one) => one.state === "running") : [];
    if (all.length <= LINES_MAX) return all.map((one) => one.name);
    const chosen = (this.slowest || []).filter((name) => all.some((one) => one.name === name));
    if (chosen.length === LINES_MAX && this.known) return chosen; // the choice stays while the window does
    this.slowest = [...all].sort((a, b) => b.step_seconds - a.step_seconds).slice(0, LINES_MAX).map((one) => one.name);
    return this.slowest;
  }

  async load() {
    if (this.loading || !this.live) return;
    this.loading = true;
    const [from] = this.window();
    const whole = !this.known || this.live.time - this.wholeAt > 120;
    const since = whole ? from : this.known;
    const lines = this.lines;
    try {
      const names = this.trainers();
      const asked = [get(`api/series?${params(["job"], [this.unit.value], since)}`)];
      if (names.length) asked.push(get(`api/series?${params(names, ["step_seconds"], since)}`));
      const found = (await Promise.all(asked)).flatMap((answer) => answer.lines);
      if (lines !== this.lines) return; // another window was chosen meanwhile
      if (whole) {
        lines.clear();
        this.wholeAt = this.live.time;
      }
      for (const line of found) this.add(line, from);
      this.note = "";
      if (this.loaded) this.loaded(this.lines.get("job examples_per_second") || []);
      this.loaded = null;
    } catch (error) {
      this.note = error.message;
    } finally {
      this.loading = false;
    }
    if (lines !== this.lines) this.load();
    else this.draw();
  }

  add(line, from) {
    const id = `${line.subject} ${line.metric}`;
    const before = (this.lines.get(id) || []).filter((point) => point[0] >= from);
    const last = before.length ? before[before.length - 1][0] : -Infinity;
    const added = points(line).filter(([time, mean]) => time > last && (mean > 0 || line.subject === "job")); // no step: no step time
    this.lines.set(id, before.concat(added));
    if (line.subject === "job" && added.length) this.known = added[added.length - 1][0];
  }

  draw() {
    if (!this.live) return;
    const window = this.window();
    const unit = this.unit.value;
    const job = this.lines.get(`job ${unit}`) || [];
    const marks = this.marks.concat(this.live.scaling ? [runningMark(this.live.scaling, this.live.time)] : []);
    this.throughput.set([{ name: unit.replaceAll("_", " "), colour: "var(--ps)", fill: true, points: job }], marks, window, this.note);
    const names = this.trainers();
    const lines = names.map((name, index) => ({ name, colour: COLOURS[index % COLOURS.length], points: this.lines.get(`${name} step_seconds`) || [] }));
    this.steps.set(lines, marks, window, this.note);
    const all = this.live.counts.trainers;
    text($("step-time-note"), all > names.length ? `median of each trainer; the ${names.length} slowest of ${f.count(all)}` : "median of each trainer");
  }
}

export function describeScaling(one) {
  const pause = one.pause !== null && one.pause !== undefined ? `, pause ${f.seconds(one.pause)}` : "";
  return `${f.scaling(one)}: ${one.outcome || one.state.toLowerCase()}${pause}`;
}

const runningMark = (one, now) => ({ kind: "scaling", time: one.started || now, until: now, text: describeScaling(one) });

/** What /api/history and /api/decisions tell, as marks. */
export function marksOf(history, decisions) {
  const scalings = history.scalings.filter((one) => one.started && one.outcome)
    .map((one) => ({ kind: "scaling", time: one.started, until: one.started + one.seconds, text: describeScaling(one) }));
  const failures = history.failures.map((one) => ({
    kind: "failure", time: one.died, until: 0,
    text: `${one.name} ${one.cause}${one.recovered === null ? ", not recovered yet" : `, ${one.by === "scaled away" ? one.by : "recovered"} after ${f.seconds(one.recovered)}`}`,
  }));
  const decided = decisions.map((one) => ({ kind: "decision", time: one.time, until: 0, text: `decision ${one.number}, ${one.action}: ${one.reason}` }));
  return [...scalings, ...failures, ...decided];
}
