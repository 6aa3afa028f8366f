// SPDX-License-Identifier: MIT OR Apache-2.0
// What the page shows: the charts with their lines, and the parts that follow from the status.

/** How long requests of a kind took. */
const latency = (title, kind) => ({
  title, say: micros, scale: "log", middle: "median", empty: "none of these requests",
  lines: [
    { name: "half of them within", of: `${kind}_p50_us`, colour: "blue" },
    { name: "99 of 100 within", of: `${kind}_p99_us`, colour: "orange" },
    { name: "the longest", of: `${kind}_max_us`, colour: "grey" }],
});

/** Charts of the daemon and of each volume. */
const TRAFFIC_PANELS = [
  { title: "Throughput", say: rate, least: 1024, lines: [
    { name: "read", of: "read_bytes_per_s", colour: "blue", filled: true },
    { name: "written", of: "written_bytes_per_s", colour: "green" }] },
  { title: "Requests a second", say: count, lines: [
    { name: "read hits", of: "hits_per_s", colour: "blue" },
    { name: "read misses", of: "misses_per_s", colour: "vermillion" },
    { name: "writes", of: "writes_per_s", colour: "green" },
    { name: "flushes", of: "flushes_per_s", colour: "purple" }] },
  latency("Latency of read hits", "hit"),
  latency("Latency of read misses", "miss"),
  latency("Latency of writes", "write"),
  latency("Latency of flushes", "flush"),
];

/** Charts of the daemon alone, and where they go among the others. */
const WHOLE_PANELS = [
  { title: "Hit ratio", say: percent, top: 1, empty: "no reads", lines: [
    { name: "of the blocks read", of: "hit_ratio", colour: "blue", filled: true },
    { name: "of the read requests", of: "request_hit_ratio", colour: "orange" }] },
  { title: "Dirty data", say: bytes, least: 1048576, lines: [
    { name: "dirty", of: "dirty_bytes", colour: "vermillion", filled: true },
    { name: "limit", of: "dirty_limit_bytes", colour: "ink", dash: 1 }] },
  { title: "Destage", say: rate, least: 1024, lines: [
    { name: "written by clients", of: "written_bytes_per_s", colour: "green" },
    { name: "destaged", of: "destaged_bytes_per_s", colour: "vermillion" }] },
  { title: "What reaches the cache device", say: rate, least: 1024, empty: "no cache device", lines: [
    { name: "read", of: "cache_read_bytes_per_s", colour: "blue" },
    { name: "written", of: "cache_written_bytes_per_s", colour: "green" }] },
  { title: "What reaches the origins", say: rate, least: 1024, lines: [
    { name: "read", of: "origin_read_bytes_per_s", colour: "blue" },
    { name: "written", of: "origin_written_bytes_per_s", colour: "green" }] },
  { title: "I/Os a second of the devices", say: count, lines: [
    { name: "cache reads", of: "cache_reads_per_s", colour: "blue" },
    { name: "cache writes", of: "cache_writes_per_s", colour: "green" },
    { name: "origin reads", of: "origin_reads_per_s", colour: "vermillion" },
    { name: "origin writes", of: "origin_writes_per_s", colour: "purple" }] },
  { title: "Waiting", say: count, least: 4, lines: [
    { name: "requests in flight", of: "requests_in_flight", colour: "blue" },
    { name: "clients", of: "clients", colour: "grey" },
    { name: "writes slowed, a second", of: "throttled_writes_per_s", colour: "vermillion" }] },
  { title: "Wear, in whole device writes a day", say: or(digits), empty: "no cache device", lines: [
    { name: "at this pace", of: "device_writes_per_day", colour: "vermillion", filled: true }] },
  { title: "Hit ratio of other sizes", say: percent, top: 1, empty: "not known yet: too little was asked for", lines: [
    { name: "half as large", of: "what_if_hit_ratio_50", colour: "orange" },
    { name: "as it is", of: "what_if_hit_ratio_100", colour: "ink" },
    { name: "twice as large", of: "what_if_hit_ratio_200", colour: "sky" },
    { name: "4 times as large", of: "what_if_hit_ratio_400", colour: "purple" }] },
];

/** Charts of a volume alone. */
const VOLUME_PANELS = [
  { title: "Hit ratio", say: percent, top: 1, empty: "no reads", lines: [
    { name: "of the read requests", of: "request_hit_ratio", colour: "blue", filled: true }] },
  { title: "Dirty data", say: bytes, least: 1048576, lines: [
    { name: "dirty", of: "dirty_bytes", colour: "vermillion", filled: true }] },
];

const BLOCK = 4096;

/** The panels of a choice, in the order in which they are read. */
function panelsOf(volume) {
  const [throughput, requests, ...latencies] = TRAFFIC_PANELS;
  if (volume) return [throughput, requests, VOLUME_PANELS[0], ...latencies, VOLUME_PANELS[1]];
  const named = (title) => WHOLE_PANELS.filter((it) => it.title === title);
  const first = [...named("Hit ratio")], second = [...named("Waiting")];
  return [throughput, requests, ...first, ...latencies, ...second, ...WHOLE_PANELS.filter((it) => !first.includes(it) && !second.includes(it))];
}

/** What is wrong, worst first: a word and a sentence each. */
function troubles(status) {
  const said = [];
  const add = (when, word, text) => { if (when) said.push([word, text]); };
  add(status.cache_failed, "Cache failed.", "The cache device takes nothing new. Run flashfront drain, stop, and do not serve this cache again.");
  add(status.lost_blocks > 0, "Data lost.", `${whole(status.lost_blocks)} blocks of 4 KiB have no sound copy. Reads of them fail until they are written anew.`);
  for (const device of status.cache_devices) {
    add(device.hang, "Cache device hangs.", device.hang && `${device.path}: no answer for ${span(device.hang.silent_s)}.`);
  }
  for (const volume of status.volumes) {
    const hang = volume.origin_hang, errors = volume.origin_read_errors + volume.origin_write_errors;
    add(volume.fenced, "Fenced.", `${volume.name}: ${volume.origin_path}: another writer has opened it (${volume.fenced_by}). Nothing is written to it any more, and clients may only read. Stop this daemon.`);
    add(volume.away_why, "Origin away.", `${volume.name}: ${volume.origin_path}: for ${span(volume.away_s)}: ${volume.away_why}. ${bytes(volume.unsent_bytes)} of dirty data wait for it, and clients' writes, too, when the cache is full of it. Check the network, the server and its rights. It is tried again for ever.`);
    add(hang, "Origin hangs.", hang && `${volume.name}: ${volume.origin_path}: no answer for ${span(hang.silent_s)}.`);
    add(volume.origin_astray, "Origin astray.", `${volume.name}: ${volume.origin_astray}`);
    add(volume.origin_error && !volume.fenced, "Origin refuses data.", `${volume.name}: ${volume.origin_error}. Dirty data stays in the cache, and is tried again.`);
    add(errors > 0, "Origin errors.", `${volume.name}: ${whole(volume.origin_read_errors)} reads and ${whole(volume.origin_write_errors)} writes of the origin failed since the start.`);
  }
  add(status.corrupt_blocks > 0, "Corrupt blocks.", `${whole(status.corrupt_blocks)} blocks did not match their checksum since the start.`);
  add(status.mirror === "alone", "No mirror.", "One of two cache devices is left out. flashfront mirror add DEVICE puts another in its place.");
  add(status.mirror_lacks_blocks > 0, "Mirror incomplete.", `${whole(status.mirror_lacks_blocks)} dirty blocks are on one cache device only.`);
  add(status.without_cache, "No cache.", "The origins are served without their cache. Dirty data that it held is missing.");
  return said;
}

/** What the daemon is doing. */
function stateOf(status) {
  const doing = status.opening ? "replaying the log, requests wait" : status.draining ? "draining" : "serving";
  return `${doing} for ${span(status.uptime_s)} · ${status.mode} · version ${status.version} · pid ${status.pid}`;
}

/** A bar that shows a part of a whole. */
function gauge(part, near, name) {
  const width = 100 * Math.min(Math.max(part ?? 0, 0), 1);
  return drawn("svg", { class: name, viewBox: "0 0 100 7", preserveAspectRatio: "none", "aria-hidden": "true" },
    drawn("rect", { class: "all", width: 100, height: 7 }), drawn("rect", { class: near ? "part near" : "part", width, height: 7 }));
}

/** The bytes written to the cache device, in whole devices a day; none before there is an hour to tell it from. */
function wear(status) {
  const device = status.capacity_blocks * BLOCK;
  return status.uptime_s >= 3600 ? share(status.cache_writes_bytes * 86400, device * status.uptime_s) : null;
}

/** Series that follow from others and from the status. */
function derived(series, status) {
  const device = status.capacity_blocks * BLOCK;
  const day = (value) => (known(value) && device > 0 ? (value * 86400) / device : null);
  return { ...series, device_writes_per_day: (series.cache_written_bytes_per_s ?? []).map(day) };
}

/** The tiles at the top. `recent` says the figures of the last ten seconds, by the names of the history. */
function tiles(status, recent, volume) {
  const sum = (...names) => names.reduce((all, name) => (known(recent[name]) ? (all ?? 0) + recent[name] : all), null);
  const traffic = [
    ["Throughput", rate(sum("read_bytes_per_s", "written_bytes_per_s")), `${rate(recent.read_bytes_per_s)} read, ${rate(recent.written_bytes_per_s)} written`],
    ["Requests a second", count(sum("hits_per_s", "misses_per_s", "writes_per_s", "flushes_per_s")), volume
      ? `${count(sum("hits_per_s", "misses_per_s"))} reads, ${count(recent.writes_per_s)} writes`
      : `${whole(status.requests_in_flight)} in flight, ${whole(status.clients)} clients`],
    ["Hits, 99 of 100 within", micros(recent.hit_p99_us), `misses ${micros(recent.miss_p99_us)}, writes ${micros(recent.write_p99_us)}`],
  ];
  if (volume) {
    return [["Hit ratio", percent(recent.request_hit_ratio), "of the read requests"], ...traffic,
      ["Dirty", bytes(volume.blocks_dirty * BLOCK), `of ${bytes(volume.size_bytes)}`]];
  }
  const sinceStart = percent(share(status.read_hits, status.read_hits + status.read_misses));
  const dirty = share(status.blocks_dirty, status.dirty_limit_blocks), cached = share(status.blocks_cached, status.capacity_blocks);
  return [["Hit ratio", percent(recent.hit_ratio), [element("span", { id: "hit-ratio" }, sinceStart), " since the start"]], ...traffic,
    ["Dirty", bytes(status.blocks_dirty * BLOCK), [gauge(dirty, dirty > 0.9, "gauge"), `${percent(dirty)} of the limit, ${bytes(status.dirty_limit_blocks * BLOCK)}`]],
    ["Cached", bytes(status.blocks_cached * BLOCK), [gauge(cached, false, "gauge"), `${percent(cached)} of ${bytes(status.capacity_blocks * BLOCK)}`]]];
}

/** A table; each cell is text, or text and a class, or an element. `data-column` is what a narrow screen shows. */
function table(label, columns, rows) {
  const head = element("tr", {}, columns.map(([name, kind]) => element("th", { scope: "col", class: kind ?? "" }, name)));
  const row = ({ cells, kind }) => element("tr", { class: kind ?? "" }, cells.map((cell, nth) => (nth === 0
    ? element("th", { scope: "row" }, cell)
    : element("td", { class: columns[nth][1] ?? "", "data-column": columns[nth][0] }, cell))));
  return element("div", { class: "box" }, element("table", { "aria-label": label }, element("thead", {}, head), element("tbody", {}, rows.map(row))));
}

/** What half, twice and four times the cache would change. */
function whatIf(status) {
  if (status.without_cache || status.what_if.length === 0) {
    const why = status.without_cache ? "There is no cache." : status.shadow_bytes > 0
      ? "Not known yet: too little was asked for." : "Not known: the cache is too small for the models that would tell.";
    return [element("p", { class: "note" }, why)];
  }
  const names = { 50: "half as large", 100: "as it is", 200: "twice as large", 400: "4 times as large" };
  const present = status.what_if.find((it) => it.size_percent === 100);
  const of = (it, key) => times(share(it[key], present[key]));
  const rows = status.what_if.map((it) => {
    const hits = share(it.read_hits, it.reads);
    const size = names[it.size_percent] + (it.filled ? "" : " *");
    return { kind: it.size_percent === 100 ? "ours" : "", cells: [size, bytes((status.capacity_blocks * BLOCK * it.size_percent) / 100),
      [percent(hits), gauge(hits, false, "hits")], of(it, "origin_read_blocks"), of(it, "origin_write_blocks"), of(it, "flash_written_blocks")] };
  });
  const shown = table("Other sizes", [["a cache"], ["size"], ["blocks read that hit"], ["origin reads"], ["origin writes"], ["flash writes"]], rows);
  const open = status.what_if.some((it) => !it.filled);
  return [shown, element("p", { class: "note" }, "An estimate from models that see a sample of what was asked for in recent times." + (open ? " * This model is not full yet: it may get better still." : ""))];
}

function volumes(status) {
  const rows = status.volumes.map((it) => {
    const { hit, miss, write } = it.latency_us, asked = hit.count + miss.count;
    const errors = it.origin_read_errors + it.origin_write_errors;
    return { cells: [it.name, it.mode, bytes(it.size_bytes), status.without_cache ? NONE : bytes(it.blocks_dirty * BLOCK), bytes(it.read_bytes), bytes(it.written_bytes),
      percent(share(hit.count, asked)), micros(hit.count ? hit.p99 : null), micros(miss.count ? miss.p99 : null), micros(write.count ? write.p99 : null),
      errors > 0 ? element("span", { class: "bad" }, whole(errors)) : "0"] };
  });
  return [table("Volumes", [["volume"], ["mode"], ["size"], ["dirty"], ["read since the start"], ["written since the start"], ["reads hit, last minute"], ["p99 hit"], ["p99 miss"], ["p99 write"], ["origin errors"]], rows)];
}

function devices(status) {
  const hanging = (hang) => (hang ? element("span", { class: "bad" }, `hangs for ${span(hang.silent_s)}`) : "answers");
  const single = status.mirror === "none";
  const caches = status.cache_devices.map((it, nth) => ({ cells: [single ? "cache" : `cache (${it.role})`, it.path,
    status.cache_failed ? element("span", { class: "bad" }, "failed") : hanging(it.hang),
    nth === 0 ? bytes(status.cache_reads_bytes) : "", nth === 0 ? bytes(status.cache_writes_bytes) : ""] }));
  const origins = status.volumes.map((it) => ({ cells: [`origin of ${it.name}`, it.origin_path, hanging(it.origin_hang), "", ""] }));
  if (origins.length > 0) {
    origins[0].cells[3] = bytes(status.origin_reads_bytes);
    origins[0].cells[4] = bytes(status.origin_writes_bytes);
  }
  const note = origins.length > 1 || caches.length > 1 ? [element("p", { class: "note" }, "Bytes are those of all cache devices and of all origins together.")] : [];
  return [table("Devices", [["device"], ["path", "path"], ["state"], ["read since the start"], ["written since the start"]], [...caches, ...origins]), ...note, ...stores(status)];
}

/** The requests to the object stores of volumes, as stores charge for them. */
function stores(status) {
  const number = (value) => (value > 0 ? element("span", { class: "bad" }, whole(value)) : "0");
  const rows = status.volumes.filter((it) => it.store).flatMap((volume) => Object.entries(volume.store).map(([kind, it]) => ({ cells: [
    `${kind.toUpperCase()} of ${volume.name}`, whole(it.requests), ["get", "put"].includes(kind) ? bytes(it.bytes) : "",
    micros(it.latency_us.count ? it.latency_us.p50 : null), micros(it.latency_us.count ? it.latency_us.p99 : null),
    number(it.errors), number(it.throttled), whole(it.retries)] })));
  if (rows.length === 0) return [];
  return [table("Requests to object stores", [["to the object store"], ["requests"], ["bytes"], ["median"], ["p99"], ["errors"], ["refused as too many"], ["sent again"]], rows),
    element("p", { class: "note" }, "Since the start; times are of the newest 512 requests of a kind.")];
}

function health(status) {
  const number = (value) => (value > 0 ? element("span", { class: "bad" }, whole(value)) : "0");
  const budget = status.flash_writes_per_day_bytes > 0
    ? `${bytes(Math.max(status.flash_writes_left_bytes, 0))} saved up, ${bytes(status.flash_writes_per_day_bytes)} a day` : "no limit set";
  const errors = status.volumes.reduce((sum, it) => sum + it.origin_read_errors + it.origin_write_errors, 0);
  const row = (name, value, about) => ({ cells: [name, value, about] });
  return [table("Health and wear", [["figure"], ["value"], ["what it means", "about"]], [
    row("lost blocks", number(status.lost_blocks), "dirty blocks whose only copy can't be read; reads of them fail"),
    row("corrupt blocks", number(status.corrupt_blocks), "blocks that did not match their checksum, since the start"),
    row("origin errors", number(errors), "I/Os that an origin failed to carry out, since the start"),
    row("throttled writes", whole(status.throttled_writes), "writes that were slowed because much was dirty, since the start"),
    row("device writes a day", or((it) => digits(it))(wear(status)), `how often the whole cache device is written in a day, told after an hour; ${bytes(status.cache_writes_bytes)} were written in ${span(status.uptime_s)}`),
    row("flash budget", budget, "what may be written to the cache device because of reads"),
    row("memory", bytes(status.rss_bytes), `of it tables ${bytes(status.index_bytes)}, buffers ${bytes(status.buffer_bytes + status.request_buffer_bytes)}, copies in RAM ${bytes(status.ram_front_bytes)}`),
  ])];
}
