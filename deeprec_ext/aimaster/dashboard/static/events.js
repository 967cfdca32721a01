// The newest events, by kind; older ones by page.

import { $, h, get, segments, sync, text } from "./dom.js";
import * as f from "./format.js";

const KINDS = { "": "all", scaling: "scalings", failure: "failures", warning: "warnings", data: "data", backup: "backups" };
const TYPES = [
  [/^(scaling|pause|view_formed)/, "scaling"],
  [/^(failure|recovered|ring_lost|promoted|fetched|silent|trouble|ps_replaced|restored|refusal|job_failed|exited|aimaster_restarted)/, "failure"],
  [/^(warning|notice|unused_ps)/, "warning"],
  [/^(dataset|ledger|leases|set_aside|records_skipped)/, "data"],
  [/^(peer_backup|disk|marks)/, "backup"],
  [/^(decision|estimated)/, "decision"],
];
const KEPT = 2000, SHOWN = 300, COMMON = ["sequence", "time", "type", "role", "epoch"];

const kindOf = (type) => (TYPES.find(([pattern]) => pattern.test(type)) || [null, ""])[1];

function short(value) {
  if (typeof value === "number") return Number.isInteger(value) ? f.count(value) : value.toPrecision(3);
  const string = typeof value === "string" ? value : JSON.stringify(value);
  return string.length > 200 ? `${string.slice(0, 200)}…` : string;
}

function details(event) {
  if (event.text) return event.text;
  if (event.type === "decision") return `${event.number}, ${event.action}: ${event.reason}`;
  const fields = { ...event, ...(event.metrics || {}), metrics: null };
  return Object.entries(fields).filter(([name, value]) => !COMMON.includes(name) && ![null, "", 0].includes(value) && String(value) !== "").map(([name, value]) => `${name} ${short(value)}`).join(", ");
}

export class Events {
  /** @param news called when an event says that the tables of changes are out of date */
  constructor(news) {
    this.news = news;
    this.events = [];
    this.kind = "";
    this.seen = null;
    segments($("event-kinds"), Object.entries(KINDS), "", (kind) => {
      this.kind = kind;
      this.draw();
    });
    $("older").addEventListener("click", () => this.older());
  }

  /** The AIMaster's newest sequence number: asks for what is new. */
  async update(sequence) {
    if (this.loading || sequence === this.seen || document.hidden) return;
    this.loading = true;
    try {
      const again = this.seen !== null && sequence > this.seen && sequence - this.seen <= 500;
      const { events } = await get(again ? `api/events?after=${this.seen}&limit=500` : "api/events?limit=200");
      this.events = (again ? this.events.concat(events) : events).slice(-KEPT);
      this.seen = sequence;
      this.draw();
      if (!again || events.some((event) => ["scaling", "failure", "decision"].includes(kindOf(event.type)))) this.news();
    } finally {
      this.loading = false;
    }
  }

  async older() {
    const first = this.events.length ? this.events[0].sequence : 0;
    if (first <= 1) return;
    const after = Math.max(0, first - 201);
    const { events } = await get(`api/events?after=${after}&limit=${first - 1 - after}`);
    this.events = events.concat(this.events);
    this.all = true;
    this.draw();
  }

  draw() {
    const fitting = this.events.filter((event) => !this.kind || kindOf(event.type) === this.kind);
    const shown = (this.all ? fitting : fitting.slice(-SHOWN)).reverse();
    sync($("event-list"), shown, (event) => event.sequence, (event) => h("li", {}, h("time", { title: new Date(1000 * event.time).toLocaleString() }), h("span"), h("span"), h("span", { class: "text" })), (element, event) => {
      const [time, type, role, words] = element.children;
      text(time, f.clock(event.time));
      type.className = `type ${kindOf(event.type)}`;
      text(type, event.type.replaceAll("_", " "));
      text(role, event.role);
      text(words, details(event));
    });
    $("older").hidden = !this.events.length || this.events[0].sequence <= 1;
  }
}
