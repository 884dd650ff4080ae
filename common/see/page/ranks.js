// The table of ranks.  A thousand ranks are shown as fast as ten: only the rows that can be seen
// are in the document, between two empty spaces that stand for the others, and only cells whose
// text has changed are written.
"use strict";

const MOST_WHOLE = 64; // ranks; with more of them the table has the visible rows alone
const ROWS_BEYOND = 8; // rows above and below those that can be seen

const fixed = (v, digits) => known(v) ? v.toFixed(digits) : "–";
const percent = (v) => known(v) ? (100 * v).toFixed(0) : "–";
const gib = (bytes) => known(bytes) ? (bytes / 2 ** 30).toFixed(2) : "–";
const ofGpu = (name) => (r) => r.gpu ? r.gpu[name] : null;
const joules = (r) => !r.joules || (!known(r.joules.package) && !known(r.joules.gpu)) ? null :
  (r.joules.package || 0) + (r.joules.gpu || 0);

function measure(name, value, text) {
  return {name, value, text: (r) => text(value(r)), isOptional: true};
}

// A column's text for people, and the number to sort by; without one it sorts by the text.  An
// optional column is hidden while no rank knows its value.
const columns = [
  {name: "rank", text: (r) => known(r.rank) ? String(r.rank) : `spare ${r.spare}`,
    value: (r) => known(r.rank) ? r.rank : 1e9 + r.spare},
  {name: "host", text: (r) => r.host || "–"},
  {name: "device", text: (r) => r.device || "–"},
  {name: "state", text: (r) => r.role},
  {name: "phase", text: (r) => r.phase || "–"},
  {name: "in phase, s", text: (r) => fixed(r.phase_seconds, 1), value: (r) => r.phase_seconds},
  {name: "step", text: (r) => number(r.step), value: (r) => r.step},
  {name: "step, ms", text: (r) => fixed(r.step_ms, 1), value: (r) => r.step_ms},
  {name: "slowness", text: (r) => fixed(r.factor, 2) + (r.straggler ? " slow" : ""),
    value: (r) => r.factor},
  {name: "heard, s ago", text: (r) => fixed(r.heard_seconds, 1), value: (r) => r.heard_seconds},
  measure("memory, GiB", (r) => r.memory_bytes, gib),
  measure("CPU, %", (r) => r.cpu, percent),
  measure("GPU, %", ofGpu("use"), percent),
  measure("GPU memory, GiB", ofGpu("memory_bytes"), gib),
  measure("GPU, °C", ofGpu("celsius"), (v) => fixed(v, 0)),
  measure("GPU, W", ofGpu("watts"), (v) => fixed(v, 0)),
  measure("GPU, MHz", ofGpu("clock_mhz"), (v) => fixed(v, 0)),
  measure("energy, J", joules, (v) => known(v) ? number(Math.round(v)) : "–"),
];

let ranks = [], inOrder = [], sortBy = 0, sortDown = false, rowHeight = 0, isPrinted = false;
const widest = columns.map(() => 0); // characters that a column had room for

function makeColumns() {
  columns.forEach((column, i) => {
    const head = element("th", null, column.value ? "" : "text");
    const button = element("button", column.name);
    head.scope = "col";
    button.type = "button";
    button.addEventListener("click", () => {
      sortDown = sortBy === i && !sortDown;
      sortBy = i;
      showRanks();
    });
    head.append(button);
    $("columns").append(head);
  });
  $("rows").addEventListener("scroll", showVisible, {passive: true});
  window.addEventListener("resize", showVisible);
  for (const name of ["beforeprint", "afterprint"]) window.addEventListener(name, () => {
    isPrinted = name === "beforeprint";
    showVisible();
  });
}

function setAttribute(e, name, value) {
  if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value);
}

// A column that is hidden is so by a class of the table, so that its cells need no change.
function hideColumns() {
  const hidden = columns.map((c, i) => c.isOptional && !ranks.some((r) => known(c.value(r))) ?
    `hide${i}` : "").filter(Boolean).join(" ");
  if ($("table").className !== hidden) $("table").className = hidden;
}

function ranksInOrder() {
  const words = $("filter").value.toLowerCase();
  const {text, value} = columns[sortBy];
  const rows = words ? ranks.filter((r) =>
    columns.some((c) => c.text(r).toLowerCase().includes(words))) : ranks;
  const key = (r) => value ? (known(value(r)) ? value(r) : -1) : text(r);
  const keyed = rows.map((r) => [key(r), r]);
  const sign = sortDown ? -1 : 1;
  keyed.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * sign);
  return keyed.map(([, r]) => r);
}

// The first row that is in the document, and the one behind the last.
function visibleRows() {
  const box = $("rows"), n = inOrder.length;
  if (isPrinted) return [0, n]; // paper does not scroll
  if (n <= MOST_WHOLE || rowHeight === 0) return [0, Math.min(n, MOST_WHOLE)];
  const first = Math.floor(box.scrollTop / rowHeight) - ROWS_BEYOND;
  const last = Math.ceil((box.scrollTop + box.clientHeight) / rowHeight) + ROWS_BEYOND;
  const begin = Math.max(0, Math.min(first, n - 1));
  return [begin, Math.min(Math.max(last, begin + 1), n)];
}

function makeRow() {
  const row = element("tr");
  for (const c of columns) row.append(element("td", "", c.value ? "" : "text"));
  return row;
}

// Columns only grow, so that the table does not shake while it is scrolled.
function widen(i, n) {
  widest[i] = n;
  $("columns").cells[i].style.minWidth = `calc(${n}ch + 14px)`;
}

function showRow(row, r, at) {
  const className = r.role === "missing" ? "bad" : r.straggler ? "warn" : "";
  if (row.className !== className) row.className = className;
  setAttribute(row, "aria-rowindex", at + 2); // the head is 1
  columns.forEach((c, i) => {
    const text = c.text(r);
    if (text.length > widest[i]) widen(i, text.length);
    setText(row.cells[i], text);
  });
}

function setHeight(space, n) {
  const height = `${n * rowHeight}px`;
  if (space.style.height !== height) space.style.height = height;
}

function showVisible() {
  const body = $("ranks"), [begin, end] = visibleRows();
  while (body.rows.length > end - begin) body.lastChild.remove();
  while (body.rows.length < end - begin) body.append(makeRow());
  for (let i = begin; i < end; i++) showRow(body.rows[i - begin], inOrder[i], i);
  if (rowHeight === 0 && body.rows.length > 0) { // measured once: all rows are alike
    rowHeight = body.getBoundingClientRect().height / body.rows.length;
    if (inOrder.length > MOST_WHOLE) return showVisible();
  }
  setHeight($("above"), begin);
  setHeight($("below"), inOrder.length - end);
}

function showRanks() {
  inOrder = ranksInOrder();
  hideColumns();
  showVisible();
  [...$("columns").cells].forEach((head, i) =>
    setAttribute(head, "aria-sort", i !== sortBy ? "none" : sortDown ? "descending" : "ascending"));
  setAttribute($("table"), "aria-rowcount", inOrder.length + 1);
  setText($("shown"), inOrder.length < ranks.length ? `${inOrder.length} of ${ranks.length}` : "");
}
