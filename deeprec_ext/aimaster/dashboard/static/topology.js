// PS as boxes with their slots as cells, trainers as boxes or, where there are many, as cells, and what flows between them.

import { $, h, svg, sync, text, attribute, style } from "./dom.js";
import * as f from "./format.js";

const PS_MAX = 96, DENSE_PS = 12, TINY_PS = 24, DENSE_TRAINERS = 24, TRAINERS_MAX = 2000, EDGE_SIDE = 8, SMALL_CELLS = 96;

export const slotLoad = (slots, slot) => slots.lookup[slot] + slots.update[slot];
const COLOURS = {
  load: { value: slotLoad, note: "seconds of look-ups and updates per second", format: f.share },
  rows: { value: (slots, slot) => slots.lookup_rows[slot] + slots.update_rows[slot], note: "rows read and written per second", format: f.short },
  bytes: { value: (slots, slot) => slots.bytes[slot], note: "bytes of its variables", format: f.bytes },
};

export class Topology {
  /** @param choose called with the subject (`ps-0`, `slot-3`) that was clicked */
  constructor(choose) {
    this.choose = choose;
    this.chosen = null;
    this.edges = [];
    this.by = $("colour-by");
    this.by.addEventListener("change", () => this.last && this.update(this.last));
    new ResizeObserver(() => this.drawEdges()).observe($("lane"));
  }

  mark(subject) {
    this.chosen = subject;
    if (this.last) this.update(this.last);
  }

  /** From traces: [{source, target, rate}], bytes per second. */
  setEdges(edges) {
    this.edges = edges;
    this.drawEdges();
  }

  update(live) {
    this.last = live;
    const ring = Boolean(live.ring); // no PS, and no slots
    for (const id of ["ps-column", "lane", "slots-by", "scale"]) $(id).hidden = ring;
    $("lane").parentElement.classList.toggle("in-step", ring);
    if (!ring) this.updatePs(live);
    this.updateTrainers(live);
    if (ring) return;
    $("lane").parentElement.classList.toggle("wide", live.ps.length > EDGE_SIDE || live.trainers.length > EDGE_SIDE);
    this.drawEdges();
  }

  // ------------------------------------------------------------------------------------------------ PS and slots

  updatePs({ ps, slots, moving, counts }) {
    this.dense = ps.length > DENSE_PS;
    const owned = ps.map(() => []);
    slots.owner.forEach((row, slot) => row >= 0 && row < owned.length && owned[row].push(slot));
    const colour = this.colours(slots);
    const rows = ps.map((one, row) => ({ ...one, slots: owned[row] }));
    const shown = rows.length > PS_MAX ? [...rows].sort((a, b) => b.busy - a.busy).slice(0, PS_MAX) : rows;
    const box = $("ps");
    box.classList.toggle("single", shown.length <= EDGE_SIDE && slots.owner.length <= SMALL_CELLS);
    box.classList.toggle("dense", this.dense);
    box.classList.toggle("tiny", shown.length > TINY_PS);
    box.classList.toggle("small", slots.owner.length > SMALL_CELLS);
    sync(box, shown, (one) => one.name, (one) => this.makePs(one), (element, one) => this.drawPs(element, one, colour, moving, slots));
    text($("ps-title"), `Parameter servers (${f.count(counts.ps)})`);
    const more = $("ps-more");
    more.hidden = counts.ps <= shown.length;
    text(more, `and ${f.plural(counts.ps - shown.length, "PS", "PS")} that are less busy`);
  }

  makePs(one) {
    return h("div", { class: "box", "data-role": one.name, onclick: (event) => this.choose(event.target.dataset.slot ? `slot-${event.target.dataset.slot}` : one.name) },
      h("button", { type: "button", class: "open line", title: "details" }, h("span", { class: "name" }), h("span", { class: "figure" })),
      h("span", { class: "meter", "aria-hidden": "true" }, h("i")),
      h("div", { class: "cells" }), h("span", { class: "sub" }), h("span", { class: "alarm" }));
  }

  drawPs(element, one, colour, moving, slots) {
    const [line, meter, cells, sub, alarm] = element.children;
    const running = one.state === "running";
    text(line.children[0], one.name);
    text(line.children[1], running ? (one.busy ? f.busy(one.busy, !this.dense) : one.cpu ? `${f.cores(one.cpu)} cores` : "") : one.state);
    style(meter.firstElementChild, "width", `${(100 * Math.min(1, one.busy)).toFixed(1)}%`);
    element.classList.toggle("off", !running);
    element.classList.toggle("chosen", this.chosen === one.name);
    const facts = [running ? f.plural(one.slots.length, "slot") : null, one.bytes ? f.bytes(one.bytes) : null, one.transferred ? f.rate(one.transferred) : null, restarts(one)];
    text(sub, facts.filter(Boolean).join(" · "));
    text(alarm, silence(one));
    sync(cells, one.slots, (slot) => slot, (slot) => h("span", { class: "cell", "data-slot": slot }, String(slot)), (cell, slot) => {
      const t = colour.share(slot);
      style(cell, "--t", `${Math.round(100 * t)}%`);
      cell.classList.toggle("deep", t > 0.5);
      cell.classList.toggle("moving", moving.has(slot));
      cell.classList.toggle("chosen", this.chosen === `slot-${slot}`);
      attribute(cell, "title", `slot ${slot}: ${colour.format(colour.value(slots, slot))}, ${f.bytes(slots.bytes[slot])}${moving.has(slot) ? ", moving" : ""}`);
    });
  }

  /** Colour 0 to 1 of a slot: a third is the mean of all, so that a hot one stands out and equal ones look equal. */
  colours(slots) {
    const wanted = COLOURS[this.by.value];
    const all = slots.owner.map((_, slot) => slot);
    const known = (by) => all.some((slot) => by.value(slots, slot) > 0);
    const by = known(wanted) ? wanted : COLOURS.bytes;
    const mean = all.reduce((sum, slot) => sum + by.value(slots, slot), 0) / (all.length || 1);
    const instead = by !== wanted && all.length ? "not measured yet; by " : "";
    text($("scale-note"), `${instead}${by.note}; mean ${by.format(mean)}, strongest colour from three times that on`);
    $("scale").hidden = !all.length;
    this.balance(slots, all, known(COLOURS.load));
    return { ...by, share: (slot) => Math.min(1, by.value(slots, slot) / (3 * mean || 1)) };
  }

  balance(slots, all, known) {
    const hot = all.reduce((best, slot) => (slotLoad(slots, slot) > slotLoad(slots, best) ? slot : best), 0);
    const total = all.reduce((sum, slot) => sum + slotLoad(slots, slot), 0);
    const part = total ? slotLoad(slots, hot) / total : 0;
    const many = known && all.length > 1 && part > 2 / all.length;
    text($("balance"), many ? `slot ${hot} carries ${f.share(part)} of the load of ${all.length} slots` : "");
  }

  // ------------------------------------------------------------------------------------------------ trainers

  updateTrainers({ trainers, counts, median }) {
    const box = $("trainers");
    const heat = trainers.length > DENSE_TRAINERS;
    if (box.classList.contains("heat") !== heat) sync(box, [], () => 0, null, null);
    box.classList.toggle("heat", heat);
    box.classList.toggle("single", trainers.length <= EDGE_SIDE);
    const slowest = Math.max(2 * median, ...trainers.slice(0, TRAINERS_MAX).map((one) => one.step_seconds));
    const shown = trainers.slice(0, TRAINERS_MAX);
    if (heat) {
      const make = (one) => h("button", { type: "button", "data-role": one.name, onclick: () => this.choose(one.name) });
      sync(box, shown, (one) => one.name, make, (element, one) => this.drawHeat(element, one, median));
    } else {
      sync(box, shown, (one) => one.name, (one) => this.makeTrainer(one), (element, one) => this.drawTrainer(element, one, slowest));
    }
    text($("trainers-title"), `Trainers (${f.count(counts.trainers)})${heat ? ", by step time: strongest from twice the median on" : ""}`);
    const more = $("trainers-more");
    more.hidden = counts.trainers <= shown.length;
    text(more, `and ${f.count(counts.trainers - shown.length)} more`);
  }

  makeTrainer(one) {
    return h("div", { class: "box trainer", "data-role": one.name, onclick: () => this.choose(one.name) },
      h("button", { type: "button", class: "open line", title: "details" }, h("span", { class: "name" }), h("span", { class: "figure" })),
      h("span", { class: "meter", "aria-hidden": "true" }, h("i")), h("span", { class: "sub" }), h("span", { class: "alarm" }));
  }

  drawTrainer(element, one, slowest) {
    const [line, meter, sub, alarm] = element.children;
    const running = one.state === "running";
    text(line.children[0], one.name);
    text(line.children[1], running ? (one.step_seconds ? `${f.seconds(one.step_seconds)} a step` : "no step yet") : one.state);
    style(meter.firstElementChild, "width", `${((100 * one.step_seconds) / slowest || 0).toFixed(1)}%`);
    element.classList.toggle("off", !running);
    element.classList.toggle("chosen", this.chosen === one.name);
    const facts = [one.examples_rate ? `${f.short(one.examples_rate)} examples/s` : null,
      one.input > 0.05 ? `waits for input ${f.share(one.input)}` : null, one.gate > 0.05 ? `waits at the gate ${f.share(one.gate)}` : null, restarts(one)];
    text(sub, facts.filter(Boolean).join(" · ") || " ");
    text(alarm, silence(one));
  }

  drawHeat(element, one, median) {
    const running = one.state === "running";
    const t = median ? Math.min(1, Math.max(0, (one.step_seconds / median - 0.5) / 1.5)) : 0;
    style(element, "--t", `${Math.round(100 * t)}%`);
    element.classList.toggle("off", !running);
    element.classList.toggle("chosen", this.chosen === one.name);
    const words = `${one.name}: ${running ? `${f.seconds(one.step_seconds)} a step` : one.state}`;
    attribute(element, "title", words);
    attribute(element, "aria-label", words);
  }

  // ------------------------------------------------------------------------------------------------ what flows

  /** Lines from each PS to each trainer where both are few; else their sum. */
  drawEdges() {
    const lane = $("lane");
    if (!this.last || this.last.ring) return;
    const { ps, trainers } = this.last;
    const total = ps.reduce((sum, one) => sum + one.transferred, 0);
    const few = ps.length && trainers.length && ps.length <= EDGE_SIDE && trainers.length <= EDGE_SIDE;
    const parts = [];
    const box = lane.getBoundingClientRect();
    if (few && box.width > 30 && box.height > 30) parts.push(this.mesh(ps, trainers, box));
    const words = total ? [h("b", {}, f.rate(total)), "of tensors"] : few ? [] : [h("b", {}, "⇄"), `${f.count(this.last.counts.ps)} × ${f.count(this.last.counts.trainers)}`];
    if (words.length) parts.push(h("div", { class: "sum" }, words));
    lane.replaceChildren(...parts);
  }

  mesh(ps, trainers, box) {
    const middle = (id, name) => {
      const element = $(id).querySelector(`[data-role="${CSS.escape(name)}"]`);
      if (!element) return null;
      const place = element.getBoundingClientRect();
      return place.top + place.height / 2 - box.top;
    };
    const busiest = Math.max(1, ...this.edges.map((edge) => edge.rate));
    const paths = [];
    for (const one of ps) {
      for (const other of trainers) {
        if (one.state !== "running" || other.state !== "running") continue;
        const [from, to] = [middle("ps", one.name), middle("trainers", other.name)];
        if (from === null || to === null) continue;
        const rate = this.edges.filter((edge) => (edge.source === one.name && edge.target === other.name) || (edge.source === other.name && edge.target === one.name))
          .reduce((sum, edge) => sum + edge.rate, 0);
        const half = box.width / 2;
        const path = svg("path", { d: `M0 ${from}C${half} ${from} ${half} ${to} ${box.width} ${to}`, "stroke-width": this.edges.length ? (0.6 + 4.5 * (rate / busiest)).toFixed(2) : 1 },
          svg("title", {}, `${one.name} ⇄ ${other.name}${rate ? `: ${f.rate(rate)}` : ""}`));
        path.classList.toggle("chosen", this.chosen === one.name || this.chosen === other.name);
        paths.push(path);
      }
    }
    return svg("svg", { "aria-hidden": "true" }, paths);
  }
}

const silence = (one) => (one.state === "running" && one.silent > 3 ? `silent for ${f.seconds(one.silent)}` : "");
const restarts = (one) => (one.restarts ? f.plural(one.restarts, "restart") : null);
