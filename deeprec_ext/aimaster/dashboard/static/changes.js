// Scalings, failures and decisions: what changed, what it cost, and why.

import { $, h, get, text } from "./dom.js";
import * as f from "./format.js";
import { Table } from "./table.js";
import { marksOf } from "./overtime.js";

const OUTCOMES = { committed: "good", rolled_back: "bad", refused: "slow" };

function chip(cell, look, words) {
  if (!cell.firstElementChild) cell.append(h("span"));
  cell.firstElementChild.className = `pill ${look}`;
  text(cell.firstElementChild, words);
}

const when = (unix) => (unix ? f.moment(unix) : "");

export class Changes {
  /** @param marked called with the marks of the time axis */
  constructor(marked) {
    this.marked = marked;
    const newest = { order: ["id", true], page: 10, key: (row) => row.id };
    this.scalings = new Table($("scaling-table"), [
      { id: "id", title: "#", number: true, sort: (row) => row.id, show: (row) => row.id },
      { id: "time", title: "when", show: (row) => when(row.started) },
      { id: "what", title: "what", show: f.scaling },
      { id: "outcome", title: "outcome", sort: (row) => row.outcome, show: (row, cell) => chip(cell, OUTCOMES[row.outcome] || "busy", (row.outcome || (row.started ? row.state : "queued")).replace("_", " ").toLowerCase()) },
      { id: "pause", title: "pause", number: true, hint: "longest standstill of a trainer", sort: (row) => row.pause || 0, show: (row) => (row.pause === null ? "" : f.seconds(row.pause)) },
      { id: "bytes", title: "moved", number: true, sort: (row) => row.bytes, show: (row) => (row.bytes ? f.bytes(row.bytes) : "") },
      { id: "resent", title: "sent again", number: true, hint: "rows that changed while they were copied", sort: (row) => row.resent, show: (row) => (row.resent ? f.bytes(row.resent) : "") },
      { id: "slots", title: "slots", number: true, sort: (row) => row.slots, show: (row) => row.slots || "" },
      { id: "seconds", title: "took", number: true, sort: (row) => row.seconds, show: (row) => (row.seconds ? f.seconds(row.seconds) : "") },
      { id: "reason", title: "why", show: (row, cell) => { cell.className = "wrap"; return [row.decision > 0 ? `decision ${row.decision}` : row.asked, row.outcome && row.outcome !== "committed" ? row.reason : ""].filter(Boolean).join(" – "); } },
    ], { ...newest, empty: "Nothing has been scaled yet: deeprec-ext scale DIR --workers 4, or the autoscaler.", label: "Scalings" });
    this.failures = new Table($("failure-table"), [
      { id: "id", title: "#", number: true, sort: (row) => row.id, show: (row) => row.id },
      { id: "time", title: "when", show: (row) => when(row.died) },
      { id: "name", title: "role", sort: (row) => row.name, show: (row) => row.name },
      { id: "cause", title: "cause", show: (row) => row.cause },
      { id: "detected", title: "noticed after", number: true, sort: (row) => row.detected, show: (row) => f.seconds(row.detected) },
      { id: "recovered", title: "recovered after", number: true, sort: (row) => row.recovered ?? Infinity, show: (row) => (row.recovered === null ? "not yet" : f.seconds(row.recovered)) },
      { id: "by", title: "by", show: (row) => row.by || "restart" },
      { id: "lost", title: "forgotten", hint: "global steps taken back, and trained records whose update was lost with a PS", show: (row) => [row.steps_lost ? f.plural(row.steps_lost, "step") : null, row.stale ? f.plural(row.stale, "record") : null].filter(Boolean).join(", ") },
    ], { ...newest, empty: "None.", label: "Failures" });
    this.decisions = new Table($("decision-table"), [
      { id: "id", title: "#", number: true, sort: (row) => row.number, show: (row) => row.number },
      { id: "time", title: "when", show: (row) => when(row.time) },
      { id: "action", title: "action", show: (row, cell) => chip(cell, "why", row.action) },
      { id: "size", title: "size", show: (row) => (row.ps !== undefined ? `${row.ps ? `${row.ps} PS, ` : ""}${f.plural(row.workers, "worker")}` : "") },
      { id: "reason", title: "reason", show: (row, cell) => { cell.className = "wrap"; return row.reason; } },
      { id: "predicted", title: "predicted", hint: "examples per second: before, and at the new size", show: (row) => (row.predicted ? `${f.short(row.before)} → ${f.short(row.predicted)}/s` : "") },
      { id: "outcome", title: "outcome", show: (row) => (row.outcome || "").replace("_", " ") },
    ], { ...newest, key: (row) => row.number, empty: "No decisions: nobody decides for this job. Start it with deeprec-ext run --autoscale, and the AIMaster sizes it and says why.", label: "Decisions of the autoscaler" });
  }

  async load() {
    const [history, decided] = await Promise.all([get("api/history"), get("api/decisions")]);
    this.scalings.set(history.scalings);
    this.failures.set(history.failures);
    this.decisions.set(decided.decisions);
    text($("autoscale"), { on: "the autoscaler is on", held: "the autoscaler is held: scaling is by hand" }[decided.autoscale] || "");
    $("estimate").hidden = !decided.estimate.length;
    $("estimate").replaceChildren(...decided.estimate.map((line, place) => h("li", {}, place ? line : `Estimated before the start: ${line}`)));
    this.marked(marksOf(history, decided.decisions));
  }
}
