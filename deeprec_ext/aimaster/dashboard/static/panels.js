// The job at a glance: header, banner, the scaling under way, vitals, data, backups, evaluation.

import { $, h, svg, sync, text, attribute } from "./dom.js";
import * as f from "./format.js";

const LOOKS = { training: "good", finished: "good", scaling: "busy", finishing: "busy", starting: "slow", failed: "bad" };
const STATES = ["ACQUIRE", "PREPARE", "PAUSE", "FINAL_COPY", "COMMIT", "RELEASE"];
const WORKER_STATES = ["ACQUIRE", "COMMIT", "RELEASE"];
const recent = [];

export function header({ job, slots, ring, time }) {
  text($("job"), job.name || "…");
  document.title = `${job.name}: ${job.state}`;
  text($("state"), job.state);
  $("state").className = `pill ${LOOKS[job.state] || ""}`;
  const facts = [`view ${f.count(job.epoch)}`, ring ? "in step, without PS" : f.plural(slots.owner.length, "slot"), `running for ${f.clockwork(job.seconds)}`];
  if (job.aimaster > 1) facts.push(`AIMaster ${job.aimaster}`);
  text($("facts"), facts.join(" · "));
  attribute($("facts"), "title", `as of ${new Date(1000 * time).toLocaleString()}`);
}

/** One line about what is unusual, or nothing. */
export function banner(look, title, words) {
  const box = $("banner");
  box.hidden = !title;
  box.className = `banner ${look}`;
  if (title && box.dataset.said !== `${title} ${words}`) {
    box.dataset.said = `${title} ${words}`;
    box.replaceChildren(h("strong", {}, title), words);
  }
}

/** What trains beside the PS, or by itself, with the one line to change. */
function noticeBanner(notices, ring) {
  const wrong = notices.filter((one) => !one.mended);
  const words = (wrong.length ? wrong : notices).map((one) => ` ${one.roles.join(", ")}: ${one.text}${one.remedy ? `: ${one.remedy}` : ""}.`).join("");
  banner(wrong.length ? "bad" : "busy", wrong.length ? (ring ? "Not all of it is as in one process." : "Not all of it trains on the PS.") : "Taken care of.", words);
}

export function stateBanner({ job, ps, trainers, counts, notices, ring, suspects = {} }) {
  if (job.state === "failed") return banner("bad", "The job has failed.", job.failure || "See the logs.");
  if (job.state === "finished") return banner("good", "The job has finished.", `${f.count(job.step)} steps in ${f.clockwork(job.seconds)}.`);
  if (job.state === "finishing") return banner("busy", "The job is finishing.", "The chief has ended; workers and evaluator end too.");
  const liars = Object.entries(suspects);
  if (liars.length) return banner("bad", "Somebody says what cannot be.", liars.slice(0, 3).map(([name, what]) => ` ${name}: ${what}.`).join(""));
  if (notices.length) return noticeBanner(notices, ring);
  if (job.state !== "starting") return banner("", "", "");
  const there = (roles) => roles.filter((one) => one.state === "running").length;
  const words = counts.ps + counts.trainers === 0 ? "No role is known yet."
    : ring ? `${there(trainers)} of ${f.plural(counts.trainers, "process", "processes")} are there; training begins when one has built its model and computed a first step.`
    : `${there(ps)} of ${f.plural(counts.ps, "PS", "PS")} and ${there(trainers)} of ${f.plural(counts.trainers, "trainers", "trainers")} are there; training begins when the chief has opened its session.`;
  return banner("slow", "The job is starting.", words);
}

export function stepper({ scaling, queued }) {
  const box = $("stepper");
  box.hidden = !scaling && !queued;
  if (!scaling) return box.replaceChildren(h("b", {}, queued ? `${f.plural(queued, "scaling")} queued` : ""), h("span", { class: "note" }, "begins as soon as the model is known and nothing else is under way"));
  const states = scaling.role === "ps" ? STATES : WORKER_STATES;
  const at = states.indexOf(scaling.state);
  const title = f.scaling(scaling);
  const steps = states.map((state, index) => h("span", { class: `state ${index < at ? "done" : index === at ? "now" : ""}`, "aria-current": index === at ? "step" : null }, state.replace("_", " ").toLowerCase()));
  return box.replaceChildren(h("b", {}, title), ...steps, h("span", { class: "note" }, `${scaling.detail}${queued ? ` · ${queued} more queued` : ""}`));
}

export function vitals(live) {
  const { job, trainers, ps, counts, limits, median, ring } = live;
  const known = job.step > 0;
  text($("step"), known ? f.count(job.step) : "–");
  text($("step-of"), job.by === "steps" ? `of ${f.count(job.last_step)} steps` : known ? "steps" : "");
  const { done } = job;
  $("step-bar").style.visibility = done === null ? "hidden" : "visible";
  $("step-bar").firstElementChild.style.width = `${100 * (done || 0)}%`;
  attribute($("step-bar"), "aria-valuenow", done === null ? null : Math.round(100 * done));
  const ends = job.left !== null && !["finished", "failed"].includes(job.state);
  text($("eta"), [done === null ? null : `${f.share(done)}${job.by === "data" ? " of its data" : ""}`, ends ? `ends in about ${f.about(job.left)}, at ${f.clock(live.time + job.left, false)}` : null].filter(Boolean).join(" · "));
  text($("examples"), job.examples_rate ? f.count(job.examples_rate) : "–");
  spark(live.time, job.examples_rate);
  text($("step-time"), median ? f.seconds(median) : "–");
  const slowest = trainers.reduce((worst, one) => (one.step_seconds > worst.step_seconds ? one : worst), { step_seconds: 0 });
  text($("step-slowest"), slowest.step_seconds > 1.2 * median ? `slowest ${slowest.name}: ${f.seconds(slowest.step_seconds)}` : median ? "median; all are alike" : "");
  const running = (roles) => roles.filter((one) => one.state === "running").length;
  const members = (id, roles, count, words) => {
    text($(`${id}-count`), f.count(count));
    const off = roles.length - running(roles);
    text($(`${id}-note`), off ? `${off} not running` : words);
  };
  text($("ps-label"), ring ? "In step" : "Parameter servers");
  $("ps-key").hidden = Boolean(ring);
  if (ring) {
    text($("ps-count"), f.count(ring.count));
    text($("ps-note"), job.steps_rate ? `${f.plain(job.steps_rate)} steps/s, all alike` : "no steps yet");
  } else members("ps", ps, counts.ps, `limits ${limits.ps.join(" to ")}`);
  members("trainer", trainers, counts.trainers, `workers ${limits.workers.join(" to ")}`);
}

/** What was measured before the page was opened: [[unix, examples per second]]. */
export function seed(points) {
  const first = recent.length ? recent[0][0] : Infinity;
  recent.unshift(...points.filter((point) => point[0] < first - 0.5).slice(-120));
}

/** The last two minutes of the throughput behind its number. */
function spark(time, value) {
  if (recent.length && time <= recent[recent.length - 1][0]) return;
  recent.push([time, value]);
  while (recent[0][0] < time - 120) recent.shift();
  const highest = Math.max(1, ...recent.map((one) => one[1])) * 1.08;
  const x = (at) => (120 - time + at).toFixed(1);
  const line = recent.map(([at, one]) => `L${x(at)} ${(1 - one / highest).toFixed(4)}`).join("");
  const picture = $("examples-spark");
  attribute(picture, "viewBox", "0 0 120 1");
  attribute(picture, "preserveAspectRatio", "none");
  const d = recent.length < 3 ? ["", ""] : [`M${x(recent[0][0])} 1${line}L120 1Z`, `M${line.slice(1)}`];
  picture.replaceChildren(svg("path", { class: "area", d: d[0] }), svg("path", { d: d[1] }));
}

export function data(datasets) {
  const make = () => h("div", { class: "dataset" }, h("div", { class: "row" }, h("b"), h("span", { class: "note" })), h("div", { class: "bar", "aria-hidden": "true" }, h("i")), h("p", { class: "note" }));
  if (!datasets.length) return $("data").replaceChildren(h("p", { class: "empty" }, "No data ledger: the script reads its data by itself, or has not begun to. With elastic_dataset every record is counted."));
  $("data").querySelector(".empty")?.remove();
  return sync($("data"), datasets, (one) => one.name, make, (element, one) => {
    const [row, bar, note] = element.children;
    const done = one.records ? one.trained / one.records : null;
    text(row.children[0], one.purpose === "train" ? one.name : `${one.name} (${one.purpose})`);
    text(row.children[1], [done === null ? null : f.share(done), one.left !== null && done < 1 ? `ends in about ${f.about(one.left)}` : null].filter(Boolean).join(" · "));
    bar.style.visibility = done === null ? "hidden" : "visible";
    bar.firstElementChild.style.width = `${100 * Math.min(1, done || 0)}%`;
    const facts = [`${f.count(one.trained)}${one.records ? ` of ${f.count(one.records)}` : ""} records trained`,
      `epoch ${one.epoch + 1}${one.epochs ? ` of ${one.epochs}` : ""}`, one.rate ? `${f.short(one.rate)} records/s` : null];
    for (const [name, words] of [["leased", "leased"], ["repeated", "repeated"], ["stale", "forgotten by a lost PS"], ["skipped", "damaged and skipped"], ["set_aside", "set aside"]]) {
      const least = one[`${name}_at_least`] ?? one[name];
      const from = least < one[name] ? (least ? `${f.count(least)} to ` : "up to ") : "";
      if (one[name]) facts.push(`${from}${f.count(one[name])} ${words}`);
    }
    text(note, facts.filter(Boolean).join(" · "));
  });
}

export function backup({ backup, slots: { owner }, ring }) {
  const slots = owner.length;
  const entries = [];
  if (backup && backup.peer) {
    const gaps = backup.unprotected;
    const some = gaps.slice(0, 12).join(", ") + (gaps.length > 12 ? ", …" : "");
    entries.push(["In another PS's memory", gaps.length ? h("span", { class: "pill slow" }, `${gaps.length} of ${slots} slots without: ${some}`) : h("span", { class: "pill good" }, "every slot")]);
    if (gaps.length < slots) entries.push(["Oldest", `${f.seconds(backup.age)} old`]);
    entries.push(["Sent so far", `${f.bytes(backup.bytes)} in ${f.plural(backup.refreshes, "refresh", "refreshes")}`]);
  }
  if (backup && backup.disk) {
    entries.push(["On disk", backup.cut ? `cut ${backup.cut}, ${f.seconds(backup.disk_age)} old` : h("span", { class: "pill slow" }, "no cut yet")], ["Directory", backup.disk]);
  }
  if (backup && backup.error) entries.push(["Last error", h("span", { class: "pill bad" }, backup.error)]);
  const box = $("backup");
  const said = JSON.stringify(entries.map((entry) => [entry[0], entry[1].textContent || entry[1]]));
  if (box.dataset.said === said) return;
  box.dataset.said = said;
  box.replaceChildren(entries.length ? h("dl", { class: "list" }, entries.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))
    : h("p", { class: "empty" }, ring ? "Each process has the whole model: whoever comes gets it from one that is there, and while one is left nothing is lost."
      : "No backups: a lost PS costs everything since the last checkpoint. They are on by default."));
}

export function metrics(values) {
  const names = Object.keys(values);
  $("metrics-card").hidden = !names.length;
  sync($("metrics"), names.flatMap((name) => [`${name} `, name]), (name) => name, (name) => h(name.endsWith(" ") ? "dt" : "dd"),
    (element, name) => text(element, name.endsWith(" ") ? name.trim() : String(values[name])));
}
