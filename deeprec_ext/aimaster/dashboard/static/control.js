// Scaling from the page, for whoever has the job's token.

import { $, h, attribute, get, keep, recall, text } from "./dom.js";
import * as f from "./format.js";

const KEY = "deeprec-ext token";

/** The token behind the `#` of the address, taken out of it at once; kept for this tab only. */
export function takeToken() {
  const address = new URL(location.href);
  const given = new URLSearchParams(address.hash.slice(1)).get("token");
  if (given !== null) {
    address.hash = "";
    history.replaceState(null, "", address.href.replace(/#$/, ""));
    keep("sessionStorage", KEY, given);
  }
  return given ?? recall("sessionStorage", KEY);
}

addEventListener("hashchange", () => {  // given to a page that is open already
  if (location.hash.includes("token=")) location.reload();
});

export class Control {
  constructor(token) {
    this.headers = { Authorization: `Bearer ${token}` };
    this.form = $("scale-form");
    this.kind = h("select", { "aria-label": "What to change", onchange: () => this.shape() },
      [["size", "number of PS and workers"], ["rebalance", "rebalance the slots"], ["replace", "replace a process"]].map(([value, title]) => h("option", { value }, title)));
    this.numbers = Object.fromEntries([["ps", "PS"], ["workers", "Workers"]].map(([kind, title]) =>
      [kind, h("input", { type: "number", min: 0, step: 1, "aria-label": title, required: true })]));
    this.ps = h("span", {}, "PS ", this.numbers.ps, " ");
    this.size = h("span", {}, this.ps, "workers ", this.numbers.workers);
    this.role = h("select", { "aria-label": "Which process" });
    this.reason = h("input", { type: "text", maxlength: 200, placeholder: "reason (optional)", "aria-label": "Reason" });
    this.preview = h("button", { type: "button", onclick: () => this.ask(true) }, "Preview");
    this.go = h("button", { type: "submit", class: "main" }, "Scale");
    this.said = h("output", { class: "note", "aria-live": "polite" });
    this.form.append(this.kind, this.size, this.role, this.reason, this.preview, this.go, this.said);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask(false);
    });
    this.check(token);
  }

  async check(token) {
    let may = false;
    if (token) {
      try {
        may = (await get("api/access", { headers: this.headers })).scale;
      } catch {
        setTimeout(() => this.check(token), 3000);
        return;
      }
    }
    this.form.hidden = !may;
    $("scale-closed").hidden = may;
    text($("access"), may ? "may scale" : "read-only");
    $("access").className = `chip ${may ? "busy" : ""}`;
    if (token && !may) text($("scale-closed"), "The token of this page is not this job's: open the file that `deeprec-ext status` names.");
    this.shape();
  }

  /** The inputs of what this job has. */
  sizes() {
    return Object.entries(this.numbers).filter(([name]) => name !== "ps" || !this.live.ring);
  }

  /** What the job has now. */
  counts() {
    return { ps: this.live.counts.ps, workers: this.live.trainers.filter((one) => one.name.startsWith("worker-")).length };
  }

  shape() {
    const kind = this.kind.value;
    this.size.hidden = kind !== "size";
    this.role.hidden = kind !== "replace";
    text(this.go, { rebalance: "Rebalance", replace: "Replace" }[kind] || "Scale");
    if (!this.live) return;
    this.ps.hidden = Boolean(this.live.ring);
    for (const [name, number] of this.sizes()) {
      const [low, high] = this.live.limits[name];
      attribute(number, "min", low);
      attribute(number, "max", high);
      attribute(number, "title", `${low} to ${high}`);
      number.disabled = this.size.hidden;  // what is not shown is not asked to be valid
    }
  }

  /** A number that nobody has changed, or that the job has come to, shows what there is. */
  follow() {
    const now = this.counts();
    for (const [name, number] of this.sizes()) {
      if (number.value === number.defaultValue) number.value = now[name];
      if (Number(number.value) === now[name]) number.defaultValue = now[name];
    }
  }

  /** The numbers that are other than what there is; both where none is. */
  wanted() {
    const now = this.counts();
    const all = this.sizes().map(([name, number]) => [name, Number(number.value)]);
    const changed = all.filter(([name, value]) => value !== now[name]);
    return Object.fromEntries(changed.length ? changed : all);
  }

  update(live) {
    const first = !this.live;
    this.live = live;
    const names = [...live.ps, ...live.trainers].map((one) => one.name).filter((name) => !name.startsWith("chief"));
    if (names.join() !== this.names) {
      this.names = names.join();
      const chosen = this.role.value;
      this.role.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
      if (names.includes(chosen)) this.role.value = chosen;
    }
    this.go.disabled = this.preview.disabled = ["finished", "failed", "finishing"].includes(live.job.state);
    this.follow();
    if (first && live.ring) {
      this.numbers.ps.disabled = true;
      this.kind.querySelector('[value="rebalance"]').remove();
      text(this.kind.querySelector('[value="size"]'), "number of workers");
    }
    if (first) this.shape();
  }

  async ask(dry) {
    const kind = this.kind.value;
    if (!this.form.reportValidity()) return;
    const what = kind === "rebalance" ? { rebalance: true } : kind === "replace" ? { replace: this.role.value } : this.wanted();
    const body = JSON.stringify({ ...what, dry_run: dry, reason: this.reason.value.trim() });
    text(this.said, "asking…");
    try {
      const answer = await get("api/scale", { method: "POST", body, headers: { ...this.headers, "Content-Type": "application/json" } });
      const number = answer.scaling_id ? ` (scaling ${answer.scaling_id})` : "";
      text(this.said, `${dry ? "Would be: " : ""}${answer.message}${number}`);
    } catch (error) {
      text(this.said, `Refused: ${error.message}`);
    }
  }
}
