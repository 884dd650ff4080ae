// The page of --http, and of a report (see/report.h).  It asks for the documents once, and then
// follows one stream of events, which it closes while it is hidden: a browser allows a host six
// connections.  A report has the documents in itself, and nothing to follow.  All that comes from
// the run is put in as text, never as HTML.
"use strict";

const $ = (id) => document.getElementById(id);
const known = (v) => v !== null && v !== undefined;
const embedded = (path) => $(path.replace("/api", "dptrain").replaceAll("/", "-"));
const isReport = known(embedded("/api/status"));
const CURVES_MS = 2000; // between two pictures, at least
const MOST_EVENTS = isReport ? 5000 : 300;

// A document of driver/web.h: parsed JSON, or a text; null if there is none.
async function ask(path) {
  if (isReport) return known(embedded(path)) ? JSON.parse(embedded(path).textContent) : null;
  const answer = await fetch(path);
  if (!answer.ok) return null;
  const isJson = (answer.headers.get("Content-Type") || "").startsWith("application/json");
  return isJson ? answer.json() : answer.text();
}

function element(name, text, className) {
  const e = document.createElement(name);
  if (known(text)) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

function number(v, digits = 4) {
  if (!known(v)) return "–";
  const a = Math.abs(v);
  if (Number.isInteger(v) || a >= 1000) return Math.round(v).toLocaleString("en");
  return a !== 0 && a < 1e-3 ? v.toExponential(2) : v.toPrecision(digits).replace(/\.?0+$/, "");
}

function span(seconds) {
  const s = Math.round(seconds);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

// ---- the run as a whole ----

let over = null; // how the run has ended, once an event has said so
let newest = null; // the status that was shown last

// The driver leaves after the event that ends the run, so no status tells of its last steps.
function atEnd(s, e) {
  const progress = s.total_steps ? Math.min(1, e.step / s.total_steps) : s.progress;
  return {...s, step: e.step, progress, epoch: progress === 1 && s.n_epochs || s.epoch};
}

function showHead(s) {
  const stage = $("stage");
  setText($("name"), s.run || "dptrain");
  document.title = `${s.run || "dptrain"}: ${Math.floor(100 * (s.progress || 0))} %`;
  setText(stage, over || s.stage);
  stage.className = "badge" + (over === "failed" || s.failed ? " bad" : "");
  $("bar").value = s.progress || 0;
  const parts = [];
  if (known(s.step))
    parts.push(`step ${number(s.step)}` + (s.total_steps ? ` of ${number(s.total_steps)}` : ""));
  if (s.epoch > 0) parts.push(`epoch ${s.epoch}` + (s.n_epochs ? ` of ${s.n_epochs}` : ""));
  if (known(s.eta_seconds) && !over) parts.push(`${span(s.eta_seconds)} left`);
  if (s.here < s.nranks) parts.push(`${s.here} of ${s.nranks} ranks are here`);
  setText($("done"), parts.join(", "));
}

const numbers = [
  ["Training loss", (s) => number(s.loss)],
  ["Validation loss", (s) => number(s.validation_loss)],
  ["Validation accuracy",
    (s) => known(s.validation_accuracy) ? `${(100 * s.validation_accuracy).toFixed(2)} %` : "–"],
  ["Learning rate", (s) => number(s.learning_rate)],
  ["Gradient norm", (s) => number(s.grad_norm)],
  ["Samples per second", (s) => number(s.samples_per_second, 3)],
  ["Ranks", (s) => `${s.here} of ${s.nranks}`],
  ["Ranks lost", (s) => number(s.ranks_lost)],
];

function showNumbers(s) {
  const list = $("numbers");
  if (!list.children.length)
    for (const [name] of numbers) {
      const box = element("div");
      box.append(element("dt", name), element("dd", "–"));
      list.append(box);
    }
  numbers.forEach(([, text], i) => setText(list.children[i].lastChild, text(s)));
}

// ---- where the time went ----

const causes = ["start", "data", "checkpoint", "validation", "lost", "repeated", "waiting"];

function showTime(s) {
  const bad = s.badput || {};
  const lost = causes.reduce((sum, c) => sum + (bad[c] || 0), 0);
  const wall = known(s.goodput) && s.goodput < 1 ? lost / (1 - s.goodput) : lost;
  const parts = [["steps that count", Math.max(wall - lost, 0)]]
    .concat(causes.map((c) => [c, bad[c] || 0]));
  const bar = $("parts"), legend = $("legend");
  if (!bar.children.length)
    parts.forEach((part, i) => {
      bar.append(element("span", null, `part${i}`));
      const line = element("li");
      line.append(element("i", null, `part${i}`), element("span"));
      legend.append(line);
    });
  parts.forEach(([name, seconds], i) => {
    const share = wall > 0 ? seconds / wall : 0;
    bar.children[i].style.width = `${100 * share}%`;
    setText(legend.children[i].lastChild, `${name} ${(100 * share).toFixed(1)} %`);
    legend.children[i].hidden = seconds === 0;
  });
  setText($("cost"), known(s.cost) ? `Cost so far ${s.cost.toFixed(2)}` +
    (known(s.cost_forecast) ? `, forecast for the whole run ${s.cost_forecast.toFixed(2)}` : "")
    : "");
  setText($("energy"), energyText(s));
}

function energy(joules) {
  if (joules >= 3.6e5) return `${(joules / 3.6e6).toPrecision(3)} kWh`;
  return joules >= 1e4 ? `${(joules / 1e3).toPrecision(3)} kJ` : `${Math.round(joules)} J`;
}

// Where a counter is missing, its joules are null, and a text says why.
function energyText(s) {
  const {package: processors, gpu} = s.joules || {};
  const parts = [];
  if (known(processors)) parts.push(`processors ${energy(processors)}`);
  if (known(gpu)) parts.push(`GPUs ${energy(gpu)}`);
  const sum = parts.length ? `Energy so far: ${parts.join(", ")}.` : "";
  if (!s.energy_missing) return sum;
  return `${sum ? `${sum} Not` : "Energy is not"} known: ${s.energy_missing}`;
}

// ---- events ----

const grave = new Set(["lost", "error", "warning", "straggler", "corruption"]);
const dull = new Set(["event", "time", "badput", "goodput", "wall_seconds", "rank_hours", "ranks"]);

function eventText(e) {
  return Object.entries(e).filter(([key, v]) => !dull.has(key) && known(v) && typeof v !== "object")
    .map(([key, v]) => `${key.replaceAll("_", " ")} ${typeof v === "number" ? number(v) : v}`).join(", ");
}

// A run may take days, and a report is read later.
function when(time) {
  const date = new Date(1000 * time);
  const isToday = date.toDateString() === new Date().toDateString();
  return isReport || !isToday ? date.toLocaleString() : date.toLocaleTimeString();
}

function showEvent(e) {
  const list = $("events"), line = element("li");
  const at = element("time", when(e.time));
  line.append(at, element("b", e.event, grave.has(e.event) ? "bad" : ""), eventText(e));
  list.prepend(line);
  while (list.children.length > MOST_EVENTS) list.lastChild.remove();
  if (e.event === "done") {
    over = e.reason ? `done: ${e.reason}` : "done";
    if (newest) showHead(atEnd(newest, e));
  }
  if (e.event === "error" && e.phase !== "checkpoint") over = "failed";
}

// ---- the connection ----

let stream = null, curvesAt = 0;

const svgAddress = (text) => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;

async function showCurves() {
  if (Date.now() - curvesAt < CURVES_MS) return;
  curvesAt = Date.now();
  const next = new Image();
  next.onload = () => {
    $("curves").src = next.src;
    $("curves").alt = `Curves of the run ${$("name").textContent}`;
    $("picture").hidden = false;
    $("no-curves").hidden = true;
  };
  next.src = isReport ? svgAddress(await ask("/api/curves.svg"))
    : `/api/curves.svg?at=${curvesAt}`;
}

function showStatus(s) {
  newest = s;
  showHead(s);
  showNumbers(s);
  showTime(s);
  ranks = s.ranks || [];
  showRanks();
  noteIncidents(s.incidents);
  if (s.step > 0) showCurves();
}

async function showJob() {
  const job = await ask("/api/job");
  if (known(job)) setText($("job"), job);
}

async function showReport() {
  const made = await ask("/api/report");
  $("link").className = "soft";
  setText($("link"), `as of ${when(made.time)}`);
  for (const e of await ask("/api/recent")) showEvent(e);
  await showJob();
  $("job").closest("details").open = true; // it is printed, too
  await showIncidents();
  showStatus(await ask("/api/status"));
}

let heard = {driver: "", number: 0}; // the newest event

// A stream begins with the newest events, so none is missed, and those that are here already come
// again.  Their ids are DRIVER-NUMBER.
function isNewEvent(id) {
  const [driver, text] = id.split("-"), n = Number(text);
  if (driver === heard.driver && n <= heard.number) return false;
  if (driver !== heard.driver) { // another driver goes on with the run, and tells all of it
    over = null;
    $("events").replaceChildren();
  }
  heard = {driver, number: n};
  return true;
}

function follow() {
  if (stream || document.hidden || isReport) return;
  stream = new EventSource("/api/events");
  stream.addEventListener("open", () => {
    setText($("link"), "");
    showJob().catch(() => {});
  });
  stream.addEventListener("error", () => {
    setText($("link"), over ? "" : "No connection to the driver: trying again");
    if (stream && stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(follow, 3000);
    }
  });
  stream.addEventListener("status", (m) => showStatus(JSON.parse(m.data)));
  stream.addEventListener("event", (m) => {
    if (isNewEvent(m.lastEventId)) showEvent(JSON.parse(m.data));
    if (over) setText($("stage"), over);
  });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden && stream) {
    stream.close();
    stream = null;
  } else {
    follow();
  }
});
$("filter").addEventListener("input", showRanks);
makeColumns();
if (isReport) showReport();
else follow();
