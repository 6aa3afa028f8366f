// SPDX-License-Identifier: MIT OR Apache-2.0
// The page's life: what was chosen, what is asked of the daemon and when, and what is shown.
//
// Every two seconds the status is asked for, and of the history what is new. A hidden or paused page asks for nothing.

const EVERY_MS = 2000;
const RANGES = { "10m": 600, "1h": 3600, "24h": 86400 };
const get = (id) => document.getElementById(id);

const chosen = { range: "10m", volume: "" };
let charts = [];
let history = null;
let paused = false;
let timer = null;
let asking = 0;
let silentSince = null;

/** What the address says after #, so that a reload shows the same. */
function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  if (said.get("range") in RANGES) chosen.range = said.get("range");
  chosen.volume = said.get("volume") ?? "";
}

function writeAddress() {
  const said = new URLSearchParams({ range: chosen.range });
  if (chosen.volume) said.set("volume", chosen.volume);
  window.history.replaceState(null, "", "#" + said);
}

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(15000) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error);
  return told;
}

/** Adds what is new to the history that the page has. */
function joined(before, told) {
  if (!before || before.step_s !== told.step_s || told.first > before.next || told.next < before.next) return told;
  const length = RANGES[chosen.range] / told.step_s;
  const series = {};
  for (const [name, values] of Object.entries(told.series)) {
    const kept = (before.series[name] ?? []).slice(0, (before.series[name] ?? []).length - (before.next - told.first));
    series[name] = kept.concat(values).slice(-length);
  }
  return { ...told, series };
}

async function askHistory() {
  const query = new URLSearchParams({ range: chosen.range });
  if (chosen.volume) query.set("volume", chosen.volume);
  if (history) query.set("from", history.next);
  let told = await ask("/api/history?" + query);
  // A daemon that was started again counts from the beginning.
  if (history && told.next < history.next) {
    query.delete("from");
    told = await ask("/api/history?" + query);
    history = null;
  }
  return joined(history, told);
}

/** Means of each series. */
function means(series) {
  const mean = (values) => (values.length > 0 ? values.reduce((sum, it) => sum + it, 0) / values.length : null);
  return Object.fromEntries(Object.entries(series).map(([name, values]) => [name, mean(values.filter(known))]));
}

/** How many steps before the daemon's start are left out, if most of the range is before it. Sixty steps stay at least. */
function youth() {
  const held = history.series.dirty_bytes;
  const start = held.findIndex(known);
  const before = start < 0 ? held.length : start;
  return before > held.length / 2 ? Math.max(Math.min(before, held.length - 60), 0) : 0;
}

function layCharts() {
  charts = panelsOf(chosen.volume).map((panel) => new Chart(panel));
  get("charts").replaceChildren(...charts.map((it) => it.figure));
}

/** Puts new content in, unless nothing has changed: a reader who selects text keeps the selection. */
function put(id, content) {
  const made = element("div", {}, content);
  if (made.innerHTML !== get(id).innerHTML) get(id).replaceChildren(...made.childNodes);
}

function showVolumes(status) {
  const names = ["", ...status.volumes.map((it) => it.name)];
  const list = get("volume");
  if (names.join("\n") !== [...list.options].map((it) => it.value).join("\n")) {
    list.replaceChildren(...names.map((name) => element("option", { value: name }, name || "all")));
  }
  list.value = names.includes(chosen.volume) ? chosen.volume : "";
}

function showAlerts(said) {
  put("alerts", said.map(([word, text]) => element("p", {}, element("strong", {}, word), " ", text)));
  document.title = (said.length > 0 ? "! " : "") + "Flashfront";
}

function show(status, newest) {
  get("state").textContent = stateOf(status);
  showAlerts(troubles(status));
  showVolumes(status);
  put("now", tiles(status, means(newest.series), status.volumes.find((it) => it.name === chosen.volume)).map(([name, big, more]) =>
    element("div", {}, element("dt", {}, name), element("dd", { class: "big" }, big), element("dd", { class: "more" }, more))));
  put("what-if", whatIf(status));
  put("volumes", volumes(status));
  put("devices", devices(status));
  put("health", health(status));
  const step = history.step_s * 1000, young = youth();
  const series = Object.fromEntries(Object.entries(derived(history.series, status)).map(([name, values]) => [name, values.slice(young)]));
  const steps = RANGES[chosen.range] / history.step_s - young;
  const data = { steps, step, begin: history.end_unix_ms - steps * step, recent: Math.max(1, Math.round(10 / history.step_s)), series };
  charts.forEach((it) => it.show(data));
  document.body.dataset.shown = chosen.range;
}

/** Asks once and shows what was said; of two questions at a time only the newer one's answer is shown. */
async function update() {
  clearTimeout(timer);
  const mine = ++asking;
  try {
    // The tiles are of the last ten seconds, whatever the charts show.
    const newest = "/api/history?range=10s" + (chosen.volume ? "&volume=" + encodeURIComponent(chosen.volume) : "");
    const [status, told, seconds] = await Promise.all([ask("/api/status"), askHistory(), ask(newest)]);
    if (mine !== asking) return;
    history = told;
    silentSince = null;
    show(status, seconds);
  } catch (error) {
    if (mine !== asking) return;
    // The address may name a volume that this daemon has not.
    if (chosen.volume && error.message.startsWith("volume=")) return choose({ volume: "" });
    silentSince ??= Date.now();
    const known = error instanceof TypeError || error.name === "TimeoutError" ? "nothing answers" : error.message;
    get("state").textContent = "no answer";
    showAlerts([["No answer from the daemon", `since ${clock(silentSince, true)} (${known}). This page tries again.`]]);
  }
  if (!paused && !document.hidden) timer = setTimeout(update, EVERY_MS);
}

/** Another choice needs other data; what is shown stays until it is there. */
function choose(change) {
  Object.assign(chosen, change);
  writeAddress();
  history = null;
  if ("volume" in change) layCharts();
  update();
}

readAddress();
layCharts();
for (const choice of document.getElementsByName("range")) {
  choice.checked = choice.value === chosen.range;
  choice.addEventListener("change", () => choose({ range: choice.value }));
}
get("choices").addEventListener("submit", (event) => event.preventDefault());
get("volume").addEventListener("change", (event) => choose({ volume: event.target.value }));
get("pause").addEventListener("click", () => {
  paused = !paused;
  get("pause").setAttribute("aria-pressed", String(paused));
  get("pause").textContent = paused ? "Paused" : "Pause";
  update();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) update(); });
new ResizeObserver(() => charts.forEach((it) => it.draw())).observe(get("charts"));
update();
