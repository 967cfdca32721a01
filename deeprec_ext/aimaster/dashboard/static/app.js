// The page: listens to the AIMaster, and hands each message to the parts.

import { $, attribute, get, keep, recall, text } from "./dom.js";
import * as f from "./format.js";
import { Changes } from "./changes.js";
import { Control, takeToken } from "./control.js";
import { Detail } from "./detail.js";
import { Events } from "./events.js";
import { Logs } from "./logs.js";
import { OverTime } from "./overtime.js";
import { Ring } from "./ring.js";
import { Roles } from "./roles.js";
import { Topology } from "./topology.js";
import { decode } from "./message.js";
import * as panels from "./panels.js";

const SILENT_MS = 15000, AGAIN_MS = [500, 1000, 2000, 4000], HIDDEN_MS = 10000, EDGES_SECONDS = 15;
const ENDED = ["finished", "failed", "finishing"];

const token = takeToken();
const detail = new Detail((subject) => {
  topology.mark(subject);
  ring.mark(subject);
});
const ring = new Ring((subject) => detail.open(subject));
const topology = new Topology((subject) => detail.open(subject));
const roles = new Roles((subject) => {
  detail.open(subject);
  $("detail").scrollIntoView({ block: "center" });
});
const overTime = new OverTime(panels.seed);
const changes = new Changes((marks) => overTime.setMarks(marks));
const events = new Events(() => changes.load().catch(report));
const logs = new Logs();
const control = new Control(token);
let live = null, edgesAt = 0;

const report = (error) => console.warn(`the AIMaster: ${error.message}`);


function show(message) {
  live = decode(message);
  panels.header(live);
  panels.stateBanner(live);
  panels.stepper(live);
  panels.vitals(live);
  panels.data(live.data);
  panels.backup(live);
  panels.metrics(live.job.metrics);
  topology.update(live);
  ring.update(live);
  roles.update(live);
  overTime.update(live);
  detail.update(live);
  control.update(live);
  logs.update(["aimaster", ...[...live.ps, ...live.trainers, ...live.others].map((one) => one.name)]);
  events.update(live.event).catch(report);
  if (!live.ring && live.time - edgesAt > EDGES_SECONDS && !document.hidden) {
    edgesAt = live.time;
    get("api/edges").then(({ edges }) => topology.setEdges(edges)).catch(report);
  }
}

// ------------------------------------------------------------------------------------------------ connection

let source = null, failures = 0, silence = 0, again = 0, hiding = 0;

function connection(alive) {
  $("link").className = `link ${alive ? "live" : "lost"}`;
  text($("link-text"), alive ? "live" : "no answer");
  document.body.classList.toggle("gone", !alive);
  if (alive) return;
  const since = live ? `since ${f.clock(live.time)}` : "";
  if (live && ENDED.includes(live.job.state)) {
    panels.banner(live.job.state === "failed" ? "bad" : "good", live.job.state === "failed" ? "The job has failed." : "The job has ended.",
      `${live.job.failure ? `${live.job.failure} ` : ""}Its AIMaster has ended with it; this is the last picture. deeprec-ext report has the whole story.`);
  } else {
    panels.banner("bad", `The AIMaster does not answer ${since}.`, "Training goes on without it for a while, and it is started again; or the job has ended. This page connects again by itself.");
  }
}

function listen() {
  leave();
  source = new EventSource("api/live");
  source.onmessage = (event) => {
    failures = 0;
    connection(true);
    show(JSON.parse(event.data));
    watch();
  };
  source.onerror = lost;
  watch();
}

function watch() {
  clearTimeout(silence);
  silence = setTimeout(lost, SILENT_MS);
}

function leave() {
  clearTimeout(silence);
  clearTimeout(again);
  if (source) source.close();
}

function lost() {
  leave();
  connection(false);
  again = setTimeout(listen, AGAIN_MS[Math.min(failures++, AGAIN_MS.length - 1)]);
  const probe = new AbortController(); // an EventSource does not tell why it was refused
  fetch("api/live", { signal: probe.signal }).then(({ status }) => {
    probe.abort();
    if (status === 503) panels.banner("slow", "Too many pages of this job are open.", "Close one; this one connects again by itself.");
  }).catch(() => {});
}

// A browser has few connections to one server, and the AIMaster has better things to do than to draw for nobody.
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(leave, HIDDEN_MS);
  else if (!source || source.readyState === EventSource.CLOSED) listen();
});

// ------------------------------------------------------------------------------------------------ colours

const theme = $("theme");
function paint(value) {
  attribute(document.documentElement, "data-theme", value === "auto" ? null : value);
  theme.value = value;
}
paint(recall("localStorage", "deeprec-ext theme") || "auto");
theme.addEventListener("change", () => {
  keep("localStorage", "deeprec-ext theme", theme.value);
  paint(theme.value);
});

listen();
