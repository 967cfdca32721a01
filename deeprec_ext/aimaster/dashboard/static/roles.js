// What every role uses, against its limits.

import { $, h, text, attribute } from "./dom.js";
import * as f from "./format.js";
import { Table, gauge } from "./table.js";

/** PS by how busy they are, trainers by the time of a step, relative to the slowest. */
function load(one, slowest) {
  return one.busy !== undefined ? one.busy : one.step_seconds ? one.step_seconds / slowest : 0;
}

export class Roles {
  constructor(choose) {
    const name = (row, cell) => {
      if (!cell.firstElementChild) cell.append(h("button", { type: "button", onclick: () => choose(row.name) }));
      cell.className = "name";
      text(cell.firstElementChild, row.name);
    };
    const state = (row, cell) => {
      if (!cell.firstElementChild) cell.append(h("span"));
      text(cell.firstElementChild, row.state);
      cell.firstElementChild.className = `pill ${row.state === "running" ? "good" : ["failed", "exited"].includes(row.state) ? "bad" : "slow"}`;
    };
    const network = (row) => {
      if (row.received + row.sent && !row.shared) return `${f.rate(row.received)} in, ${f.rate(row.sent)} out`;
      return row.transferred ? `${f.rate(row.transferred)} of tensors` : "";
    };
    const waits = (row) => row.step_seconds === undefined ? "" : [[row.input, "input"], [row.gate, "gate"]].filter(([value]) => value >= 0.005).map(([value, what]) => `${what} ${f.share(value)}`).join(", ");
    this.table = new Table($("role-table"), [
      { id: "name", title: "role", sort: (row) => row.place, show: name },
      { id: "state", title: "state", sort: (row) => row.state, show: state },
      { id: "load", title: "load", number: true, hint: "PS: share of time in which an op ran for a trainer; above one, ops that run, or wait for a core, at once. Trainers: median step time.", sort: (row) => row.load, show: (row) => row.busy !== undefined ? (row.busy ? f.busy(row.busy) : "") : row.step_seconds ? f.seconds(row.step_seconds) : "" },
      { id: "cpu", title: "CPU", number: true, hint: "cores in use, and the limit", sort: (row) => row.cpu, show: (row, cell) => gauge(cell, row.cpu_limit ? row.cpu / row.cpu_limit : null, row.cpu ? `${f.cores(row.cpu)}${row.cpu_limit ? ` of ${f.cores(row.cpu_limit)}` : ""}` : "", row.shared ? "the limit is shared with the other roles on this machine" : "") },
      { id: "memory", title: "memory", number: true, sort: (row) => row.memory, show: (row, cell) => gauge(cell, row.memory_limit ? row.memory / row.memory_limit : null, row.memory ? `${f.bytes(row.memory)}${row.memory_limit ? ` of ${f.bytes(row.memory_limit)}` : ""}` : "", row.shared ? "the limit is shared with the other roles on this machine" : "") },
      { id: "network", title: "network", number: true, hint: "received and sent; of a PS whose network others share, the tensors of trainers", sort: (row) => row.transferred || row.received + row.sent, show: network },
      { id: "waits", title: "waits", hint: "share of time a trainer waits for input, and at the gate for scalings and failovers", sort: (row) => (row.input || 0) + (row.gate || 0), show: waits },
      { id: "restarts", title: "restarts", number: true, sort: (row) => row.restarts, show: (row) => (row.restarts ? f.count(row.restarts) : "") },
    ], { key: (row) => row.name, order: ["name", false], page: 20, empty: "No role is known yet.", label: "What every role uses" });
    this.find = $("find");
    this.find.addEventListener("input", () => {
      const wanted = this.find.value.trim().toLowerCase();
      this.table.filter(wanted ? (row) => `${row.name} ${row.state}`.includes(wanted) : null);
    });
  }

  update({ ps, trainers, others }) {
    const all = [...ps, ...trainers, ...others];
    const slowest = Math.max(1e-9, ...trainers.map((one) => one.step_seconds));
    this.table.set(all.map((one, place) => ({ ...one, place, load: load(one, slowest) })));
    const limited = all.filter((one) => one.memory_limit);
    text($("limits-note"), limited.length && limited.every((one) => one.shared) ? "limits are this machine's: all roles share them" : "");
  }
}
