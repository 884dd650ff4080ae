// The incidents of a run (report/incidents.h).  The list is asked for when the status tells of a
// new one, and a file when its line is opened, since it may have megabytes.
"use strict";

const INCIDENT_WRITTEN_MS = 2000; // the file is there so long after the status has told of it

let nIncidents = -1; // as the status tells; of this driver alone, so the list may have more

// "bucket 3 of step 118": what a rank was about to sum, or had summed.
function workText(c) {
  return `${typeof c.bucket === "number" ? "bucket " : ""}${c.bucket} of step ${c.step}`;
}

const ago = (seconds) => known(seconds) ? seconds.toFixed(3) : "–";

const rankColumns = [
  ["rank", (r) => String(r.rank)], ["host", (r) => r.host, "text"],
  ["kept others waiting", (r) => r.behind ? "yes" : "", "text"],
  ["its last collective", (r) => r.collectives && r.collectives.length ?
    `${workText(r.collectives.at(-1))}: ${r.collectives.at(-1).state}` : "did not answer", "text"],
  ["phase", (r) => r.phase, "text"], ["in phase, s", (r) => fixed(r.phase_seconds, 1)],
  ["step", (r) => number(r.step)], ["bucket", (r) => known(r.bucket) ? String(r.bucket) : "–"],
  ["heard, s ago", (r) => fixed(r.heard_seconds, 1)], ["pid", (r) => String(r.pid)],
];

const collectiveColumns = [
  ["number", (c) => String(c.number)], ["generation", (c) => String(c.generation)],
  ["step", (c) => number(c.step)], ["bucket", (c) => String(c.bucket)],
  ["bytes", (c) => number(c.bytes)], ["phase", (c) => c.phase, "text"],
  ["state", (c) => c.state, "text"], ["handed over, s before", (c) => ago(c.handed)],
  ["begun", (c) => ago(c.began)], ["ended", (c) => ago(c.ended)],
];

// A table that scrolls by itself, and by the keyboard.
function makeTable(label, heads, rows) {
  const box = element("div", null, "wide"), table = element("table"), head = element("tr");
  box.tabIndex = 0;
  box.role = "region";
  box.ariaLabel = label;
  for (const [name, , className] of heads) {
    const cell = element("th", name, className);
    cell.scope = "col";
    head.append(cell);
  }
  table.append(element("thead"), element("tbody"));
  table.tHead.append(head);
  for (const r of rows) {
    const row = element("tr", null, r.behind ? "warn" : "");
    for (const [, text, className] of heads) row.append(element("td", text(r), className));
    table.tBodies[0].append(row);
  }
  box.append(table);
  return box;
}

// <details> whose content `fill` makes when it is opened; again, if it has thrown before.
function makeDetails(summary, fill) {
  const details = element("details"), content = element("div");
  let isFilled = false;
  details.append(summary, content);
  details.addEventListener("toggle", async () => {
    if (!details.open || isFilled) return;
    isFilled = true;
    try {
      content.replaceChildren(...await fill());
    } catch (e) {
      content.replaceChildren(
        element("p", `It cannot be shown now, close it and try again: ${e.message}`));
      isFilled = false;
    }
  });
  return details;
}

function incidentContent(name, i) {
  const parts = [makeTable(`Ranks of ${name}`, rankColumns, i.ranks)];
  for (const r of i.ranks)
    if (r.collectives && r.collectives.length)
      parts.push(makeDetails(
        element("summary", `The last collectives of rank ${r.rank}: ${r.collectives.length}`),
        () => [makeTable(`Collectives of rank ${r.rank}`, collectiveColumns,
          [...r.collectives].reverse())]));
  if (!isReport) {
    const link = element("a", "the file, as JSON");
    link.href = `/api/incidents/${encodeURIComponent(name)}`;
    parts.push(link);
  }
  return parts;
}

async function readIncident(name) {
  const i = await ask(`/api/incidents/${name}`);
  if (!i) throw new Error(`incidents/${name} is in the run directory`);
  return incidentContent(name, i);
}

function makeIncident(row) {
  const summary = element("summary");
  summary.append(element("time", known(row.time) ? when(row.time) : "–"),
    element("b", row.stage || row.name),
    known(row.step) ? `step ${number(row.step)}: ` : "", row.message || row.name);
  const line = element("li");
  line.dataset.name = row.name;
  line.append(makeDetails(summary, () => readIncident(row.name)));
  return line;
}

// Lines that are there stay as they are, open or not.
async function showIncidents() {
  const rows = await ask("/api/incidents"), list = $("incidents");
  if (!rows) nIncidents = -1; // the next status asks again
  if (!rows) return;
  for (const row of rows)
    if (![...list.children].some((line) => line.dataset.name === row.name))
      list.prepend(makeIncident(row));
  $("no-incidents").hidden = list.children.length > 0;
}

function noteIncidents(n) {
  if (!known(n) || n === nIncidents) return;
  nIncidents = n;
  showIncidents().catch(() => {});
  if (n > 0) setTimeout(() => showIncidents().catch(() => {}), INCIDENT_WRITTEN_MS);
}
