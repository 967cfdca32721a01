// The end of one role's log; follows it while the box is ticked.

import { $, h, get, sync, text } from "./dom.js";

const KEPT = 400_000, POLL_MS = 2000;

export class Logs {
  constructor() {
    this.role = $("log-role");
    this.box = $("log");
    this.end = null;
    this.role.addEventListener("change", () => this.open(this.role.value));
    $("log-follow").addEventListener("change", () => this.poll());
    // nothing is read while nobody looks
    new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      if (this.visible) this.poll();
    }).observe(this.box);
    setInterval(() => this.poll(), POLL_MS);
  }

  update(names) {
    if (this.role.options.length === names.length && names.every((name, index) => this.role.options[index].value === name)) return;
    const chosen = this.role.value;
    sync(this.role, names, (name) => name, (name) => h("option", { value: name }), (element, name) => text(element, name));
    if (!names.includes(chosen)) this.open(names.includes("chief-0") ? "chief-0" : names[0]);
    this.role.value = this.shown;
  }

  open(name) {
    this.shown = name;
    this.role.value = name;
    this.end = null;
    this.poll(true);
  }

  async poll(chosen = false) {
    if (!this.shown || !(chosen || this.visible) || this.loading || document.hidden || (this.end !== null && !$("log-follow").checked)) return;
    this.loading = true;
    const name = this.shown;
    try {
      const part = await get(`api/logs/${encodeURIComponent(name)}?${this.end === null ? "tail=65536" : `after=${this.end}`}`);
      if (name === this.shown) this.show(part, this.end === part.start);
    } catch (error) {
      if (this.end === null && name === this.shown) text(this.box, error.message);
    } finally {
      this.loading = false;
    }
    if (name !== this.shown) this.poll(true);
  }

  show(part, follows) {
    const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 40;
    if (!follows) this.box.replaceChildren();
    if (part.text) this.box.append(part.text);
    while (this.box.childNodes.length > 1 && this.box.textContent.length > KEPT) this.box.firstChild.remove();
    if (!this.box.textContent) this.box.append("(nothing yet)");
    this.end = part.end;
    if (!follows || atEnd) this.box.scrollTop = this.box.scrollHeight;
  }
}
