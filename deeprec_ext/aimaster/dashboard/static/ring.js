// A job without PS: its members as a ring, in the order in which they sum, and who is not in it.

import { $, h, svg, sync, text } from "./dom.js";
import * as f from "./format.js";

const DRAWN_MAX = 16, WIDTH = 440, HEIGHT = 300, RADIUS = 92, AWAY = 34, NODE = 13, GAP = (NODE + 5) / RADIUS;
const TOLD = [["waits", "waits for", "slow"], ["coming", "comes", "busy"], ["leaving", "leaves", "busy"], ["lost", "lost", "bad"]];

export class Ring {
  /** @param choose called with the name of the member that was clicked */
  constructor(choose) {
    this.choose = choose;
    this.chosen = null;
  }

  mark(subject) {
    this.chosen = subject;
    if (this.last) this.update(this.last);
  }

  update(live) {
    this.last = live;
    const { ring, job } = live;
    $("ring").hidden = !ring;
    if (!ring) return;
    const others = [...ring.coming.map(([name]) => [name, "coming"]), ...ring.leaving.map(([name]) => [name, "leaving"])]
      .filter(([name]) => !ring.members.includes(name));
    const drawn = ring.members.length + others.length <= DRAWN_MAX;
    text($("ring-title"), `Ring (${f.count(ring.count)} in step)`);
    $("ring-picture").hidden = !drawn;
    const said = JSON.stringify([ring, job.epoch, this.chosen, job.steps_rate, job.state]);
    if (drawn && said !== this.said) $("ring-picture").replaceChildren(this.draw(live, others));
    this.said = said;
    const told = TOLD.flatMap(([key, words, look]) => ring[key].map(([name, why], place) => ({ id: `${key} ${name} ${key === "lost" ? place : ""}`, words, look: key === "lost" && ring.members.includes(name) ? "" : look, name, why })));
    const make = () => h("li", {}, h("span"), h("b"), h("span", { class: "note" }));
    sync($("ring-told"), told, (one) => one.id, make, (element, one) => {
      element.children[0].className = `pill ${one.look}`;
      [one.words, one.name, one.why].forEach((words, at) => text(element.children[at], words));
    });
    const all = `${ring.members.slice(0, DRAWN_MAX).join(" → ")}${ring.count > DRAWN_MAX ? ` → … ${f.count(ring.count - DRAWN_MAX)} more` : ""}`;
    text($("ring-order"), drawn ? "" : all);
  }

  draw({ ring, job, median, trainers }, others) {
    const nodes = [...ring.members.map((name) => [name, "member"]), ...others];
    const waits = new Set(ring.waits.map(([name]) => name)), leaving = new Set(ring.leaving.map(([name]) => name));
    const angle = (place) => (2 * Math.PI * place) / Math.max(1, nodes.length) - Math.PI / 2;
    const at = (place, radius) => [WIDTH / 2 + radius * Math.cos(angle(place)), HEIGHT / 2 + radius * Math.sin(angle(place))];
    const point = (turn) => `${(WIDTH / 2 + RADIUS * Math.cos(turn)).toFixed(1)} ${(HEIGHT / 2 + RADIUS * Math.sin(turn)).toFixed(1)}`;
    const parts = [svg("defs", {}, svg("marker", { id: "ring-arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", class: "tip" })))];
    const count = ring.members.length;
    for (let place = 0; place < count; place += 1) {
      const from = angle(place) + GAP, to = (place + 1 < count ? angle(place + 1) : angle(0) + 2 * Math.PI) - GAP;
      if (count > 1) parts.push(svg("path", { class: "arc", d: `M${point(from)}A${RADIUS} ${RADIUS} 0 ${to - from > Math.PI ? 1 : 0} 1 ${point(to)}`, "marker-end": "url(#ring-arrow)" }));
    }
    nodes.forEach(([name, kind], place) => {
      const member = kind === "member";
      const [x, y] = at(place, member ? RADIUS : RADIUS + AWAY);
      if (!member) {
        const [near, far] = [at(place, RADIUS - 4), at(place, RADIUS + AWAY - NODE)];
        const [begin, end] = kind === "coming" ? [far, near] : [near, far];
        parts.push(svg("path", { class: "way", d: `M${begin}L${end}`, "marker-end": "url(#ring-arrow)" }));
      }
      const trainer = trainers.find((one) => one.name === name);
      const look = [waits.has(name) || (member && trainer && trainer.state !== "running") ? "waits" : "", leaving.has(name) ? "leaving" : "", this.chosen === name ? "chosen" : ""].join(" ");
      const out = member ? NODE + 5 : NODE + 4, side = Math.cos(angle(place)), beyond = (member ? RADIUS : RADIUS + AWAY) + out;
      const [tx, ty] = [WIDTH / 2 + beyond * side, HEIGHT / 2 + beyond * Math.sin(angle(place)) + (Math.abs(side) < 0.3 ? (Math.sin(angle(place)) > 0 ? 9 : -1) : 4)];
      const words = `${name}: ${member ? (trainer && trainer.step_seconds ? `${f.seconds(trainer.step_seconds)} a step` : "in the ring") : kind}`;
      parts.push(svg("g", { class: `node ${kind} ${look}`, onclick: () => this.choose(name) }, svg("title", {}, words), svg("circle", { cx: x, cy: y, r: NODE }),
        svg("text", { x: tx, y: ty, "text-anchor": Math.abs(side) < 0.3 ? "middle" : side > 0 ? "start" : "end" }, name)));
    });
    const rate = ["training", "scaling", "finishing"].includes(job.state) && job.steps_rate ? `${f.plain(job.steps_rate)} steps/s` : count ? "no steps" : job.step ? "nobody sums any more" : "nobody yet";
    parts.push(svg("text", { x: WIDTH / 2, y: HEIGHT / 2 - 8, class: "view", "text-anchor": "middle" }, `view ${f.count(job.epoch)}`),
      svg("text", { x: WIDTH / 2, y: HEIGHT / 2 + 12, "text-anchor": "middle" }, rate));
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Ring of ${ring.members.join(", ") || "nobody"}${median ? `, ${f.seconds(median)} a step` : ""}` }, parts);
  }
}
