// One PS, trainer or slot: its figures, its last quarter of an hour, and what lies on it.

import { $, h, get, text } from "./dom.js";
import * as f from "./format.js";
import { Chart } from "./chart.js";
import { COLOURS, params, points } from "./overtime.js";
import { slotLoad } from "./topology.js";

const SECONDS = 900, POLL_SECONDS = 5;
const CHARTS = {
  process: [["CPU", f.cores, ["cpu_cores"]], ["Memory", f.bytes, ["rss_bytes"]]],
  ps: [["Busy", f.share, ["busy_share", "rpc_share"]], ["Tensors to and from trainers", f.rate, ["rpc_bytes_per_second"]]],
  trainer: [["Step time", f.seconds, ["step_seconds", "step_p95_seconds"]], ["Waiting", f.share, ["input_wait_share", "gate_wait_share"]]],
  slot: [["Load", f.share, ["lookup_share", "update_share"]], ["Rows per second", f.short, ["lookup_rows_per_second", "update_rows_per_second"]]],
};

export class Detail {
  /** @param chosen called with the subject shown, or null */
  constructor(chosen) {
    this.chosen = chosen;
    this.box = $("detail");
    this.box.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
  }

  open(subject) {
    if (this.subject === subject) return this.close();
    this.subject = subject;
    this.asked = 0;
    const kind = subject.split("-")[0];
    const wanted = kind === "slot" ? CHARTS.slot : [...(kind === "ps" ? CHARTS.ps : kind === "evaluator" ? [] : CHARTS.trainer), ...CHARTS.process];
    this.facts = h("dl", { class: "list" });
    this.more = h("div");
    const holders = wanted.map(() => h("div", { class: "chart" }));
    const title = h("div", { class: "head" }, h("h2", {}, kind === "slot" ? `Slot ${subject.slice(5)}` : subject), h("button", { type: "button", onclick: () => this.close() }, "Close"));
    this.box.replaceChildren(title, h("div", { class: "columns" }, h("div", {}, this.facts, this.more), h("div", { class: "charts" }, wanted.map(([name], index) => h("div", {}, h("h3", {}, name), holders[index])))));
    this.box.hidden = false;
    this.charts = wanted.map(([name, format, metrics], index) => {
      holders[index].id = `detail-chart-${index}`;
      return { metrics, chart: new Chart(holders[index], { title: `${name} of ${subject}`, format, height: 140 }) };
    });
    if (kind === "slot") this.variables(Number(subject.slice(5)));
    this.chosen(subject);
    this.box.focus({ preventScroll: true });
    this.box.scrollIntoView({ block: "nearest" });
    if (this.live) this.update(this.live);
    return undefined;
  }

  close() {
    const from = document.querySelector(`[data-role="${CSS.escape(this.subject || "")}"] .open`);
    this.subject = null;
    this.box.hidden = true;
    this.chosen(null);
    if (from) from.focus();
  }

  update(live) {
    this.live = live;
    if (!this.subject) return;
    const facts = this.subject.startsWith("slot-") ? slotFacts(live, Number(this.subject.slice(5))) : roleFacts(live, this.subject);
    const said = JSON.stringify(facts);
    if (said !== this.said) {
      this.said = said;
      this.facts.replaceChildren(...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    }
    if (live.time - this.asked >= POLL_SECONDS && !document.hidden) this.load(live.time);
  }

  async load(now) {
    this.asked = now;
    const { subject, charts } = this;
    const window = [now - SECONDS, now];
    try {
      const { lines } = await get(`api/series?${params([subject], charts.flatMap((one) => one.metrics), window[0], 300)}`);
      if (subject !== this.subject) return;
      for (const { metrics, chart } of charts) {
        const found = lines.filter((line) => metrics.includes(line.metric));
        const oldest = Math.min(now - 60, ...found.map((line) => line.times[0] ?? now));
        chart.set(metrics.map((metric, index) => {
          const line = found.find((one) => one.metric === metric);
          return { name: metric.replaceAll("_", " "), colour: COLOURS[(index * 3 + 3) % COLOURS.length], fill: index === 0, points: line ? points(line) : [] };
        }), [], [Math.max(window[0], oldest), now]);
      }
    } catch (error) {
      for (const { chart } of charts) chart.set([], [], window, error.message);
    }
  }

  async variables(slot) {
    try {
      const found = await get(`api/slots/${slot}`);
      const rows = found.variables.map((one) => h("tr", {}, h("td", {}, one.name), h("td", {}, one.shape.join(" × ") || "scalar"), h("td", { class: "number" }, f.bytes(one.bytes))));
      const rest = found.count - found.variables.length;
      this.more.replaceChildren(h("h3", {}, f.plural(found.count, "variable")), h("div", { class: "scroller" }, h("table", {}, h("tbody", {}, rows))), rest > 0 ? h("p", { class: "note" }, `and ${f.count(rest)} smaller ones`) : "");
    } catch (error) {
      text(this.more, error.message);
    }
  }
}

function roleFacts(live, name) {
  const one = [...live.ps, ...live.trainers, ...live.others].find((role) => role.name === name);
  if (!one) return [["State", "gone"]];
  const limit = (value, most, format) => format(value) + (most ? ` of ${format(most)}${one.shared ? " (shared)" : ""}` : "");
  const facts = [["State", one.state], ["CPU", `${limit(one.cpu, one.cpu_limit, f.cores)} cores`], ["Memory", limit(one.memory, one.memory_limit, f.bytes)]];
  if (one.bytes !== undefined) {
    const row = live.ps.findIndex((role) => role.name === name);
    const slots = live.slots.owner.flatMap((owner, slot) => (owner === row ? [slot] : []));
    facts.push(["Busy", f.busy(one.busy, one.busy > 1)], ["Variables", f.bytes(one.bytes)], ["Slots", slots.join(", ") || "none"], ["Tensors", f.rate(one.transferred)]);
  }
  if (one.step_seconds !== undefined) {
    facts.push(["Step", f.count(one.step)], ["Step time", `${f.seconds(one.step_seconds)}${one.step_p95 ? `, 95 % below ${f.seconds(one.step_p95)}` : ""}`], ["Examples", `${f.plain(one.examples_rate)} per second`], ["Waits for input", f.share(one.input)], ["Waits at the gate", f.share(one.gate)]);
  }
  if (one.restarts) facts.push(["Restarts", f.count(one.restarts)]);
  return facts;
}

function slotFacts({ slots, ps }, slot) {
  if (slot >= slots.owner.length) return [["State", "gone"]];
  const owner = ps[slots.owner[slot]];
  const total = slots.owner.reduce((sum, _, one) => sum + slotLoad(slots, one), 0);
  return [["On", owner ? owner.name : "no PS"], ["Bytes", f.bytes(slots.bytes[slot])],
    ["Load", `${f.share(slotLoad(slots, slot))}${total ? `, ${f.share(slotLoad(slots, slot) / total)} of the job's` : ""}`],
    ["Rows read", `${f.short(slots.lookup_rows[slot])} per second`], ["Rows written", `${f.short(slots.update_rows[slot])} per second`]];
}
