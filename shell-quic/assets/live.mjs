// The overload as it happens: asks for the books once a second, and draws what has changed.
//
// Names of topics and of what else clients choose are only ever texts of elements.

const PACE = 1000;
const PATIENCE = 5000;
// Two minutes, and what was before the first second of them.
const KEPT = 121;
const COLOURS = 8;
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
// Cells that are drawn; the others are summed up.
const LINES = 12;
const TABLES = ["refused", "shed", "evicted", "dropped"];

const PLOTS = [
  { id: "publish", title: "Publishing", unit: "records/s", show: SHOW.rate,
    about: "Offered to the broker, and what became of it.",
    lines: () => rates("offered", "admitted", "sequenced", "refused", "shed", "evicted") },
  { id: "deliver", title: "Delivery", unit: "records/s", show: SHOW.rate,
    about: "Over all subscribers: one record for a hundred of them counts a hundred times.",
    lines: () => rates("expected", "delivered", "dropped", "left") },
  { id: "lost", title: "Losses by place and reason", unit: "records/s", show: SHOW.rate,
    about: "Where records end that are not delivered.", lines: losses },
  { id: "memory", title: "Memory held and its limit", unit: "bytes", show: SHOW.bytes,
    about: "All shards; shaded while a memory band is above normal.",
    lines: () => levels("held", "budget") },
  { id: "queue", title: "Publish queue", unit: "slots", show: SHOW.records,
    about: "Jobs queued and publishes parked, of the slots of all shards.",
    lines: () => levels("queued", "parked", "slots") },
  { id: "inflight", title: "Admission", unit: "bytes", show: SHOW.bytes,
    about: "Publish bytes in flight, of what all shards admit.",
    lines: () => levels("in flight", "limit") },
];
// Lines that bound others: drawn when the picture can hold them.
const BOUNDS = ["budget", "slots", "limit"];

// What is drawn now; tests read it.
const live = { samples: [], plots: [], ledger: null };
window.sluicegate = live;
// Cells that were ever seen, so that one keeps its colour. As many as the core's table has.
const cells = [];

function add(map, name, count) {
  map.set(name, (map.get(name) ?? 0) + count);
}

// The sum of all shards at a moment.
function sample(shards, seconds) {
  const counts = new Map();
  let band = 0;
  for (const shard of shards) {
    const { books, memory, queue, inflight } = shard;
    for (const [name, tally] of Object.entries(books.columns)) add(counts, name, tally.records);
    for (const table of TABLES) {
      for (const { place, reason, records } of books[table]) {
        const name = `${table} ${place}/${reason}`;
        if (!cells.includes(name)) cells.push(name);
        add(counts, name, records);
      }
    }
    add(counts, "held", memory.held);
    // Each shard knows what all may hold together.
    counts.set("budget", memory.budget * memory.factor_thousandths / 1000);
    // A column of the books has the name of what waits in the queue, too.
    add(counts, "level queued", queue.jobs);
    add(counts, "level parked", queue.parked);
    add(counts, "level slots", queue.slots);
    add(counts, "level in flight", inflight.bytes);
    add(counts, "level limit", inflight.limit);
    add(counts, "connections", shard.connections);
    add(counts, "subscriptions", shard.subscriptions);
    band = Math.max(band, BANDS.indexOf(shard.band));
  }
  return { seconds, counts, band };
}

function count(one, name) {
  return one.counts.get(name) ?? 0;
}

// Per second, since the sample before.
function rate(name) {
  return live.samples.map((one, at) => {
    const before = live.samples[at - 1];
    const step = before ? one.seconds - before.seconds : 0;
    return step > 0 ? (count(one, name) - count(before, name)) / step : null;
  });
}

function rates(...names) {
  return names.map((name, at) => ({ label: name, at, values: rate(name) }));
}

function levels(...names) {
  return names.map((name, at) => {
    const key = live.samples[0].counts.has(`level ${name}`) ? `level ${name}` : name;
    return { label: name, at, values: live.samples.map((one) => count(one, key)) };
  });
}

// The cells that have moved most in what is kept, and the sum of the others.
function losses() {
  const [first, last] = [live.samples[0], live.samples.at(-1)];
  const moved = cells
    .map((name, at) => ({ name, at, by: count(last, name) - count(first, name) }))
    .filter(({ by }) => by > 0)
    .sort((one, other) => other.by - one.by);
  const lines = moved.slice(0, LINES).sort((one, other) => one.at - other.at)
    .map(({ name, at }) => ({ label: name, at, values: rate(name) }));
  const rest = moved.slice(LINES).map(({ name }) => rate(name));
  if (rest.length) {
    const values = rest[0].map((value, at) =>
      (value === null ? null : rest.reduce((sum, line) => sum + line[at], 0)));
    lines.push({ label: "others", at: 6, values });
  }
  return lines;
}

function most(lines) {
  return Math.max(0, ...lines.flatMap(({ values }) => values.filter((value) => value !== null)));
}

// Leaves out a bound that would flatten what it bounds, and says so.
function fitting(lines, show) {
  const bound = lines.find(({ label }) => BOUNDS.includes(label));
  const held = lines.filter((line) => line !== bound);
  if (!bound || most([bound]) <= most(held) * 4) return { lines, note: "" };
  return { lines: held, note: ` The ${bound.label}, ${show(bound.values.at(-1))}, is above it.` };
}

// Steps between the marks of an axis: whole numbers, and powers of two for bytes.
const WHOLE = Array.from({ length: 40 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));
const BINARY = Array.from({ length: 44 }, (_, at) => 2 ** at);

function steps(show) {
  if (show === SHOW.bytes) return { incrs: BINARY };
  return show === SHOW.records ? { incrs: WHOLE } : {};
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

function axes({ show, unit }) {
  const common = {
    stroke: colour("soft"),
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { stroke: colour("grid"), width: 1 },
    font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif",
  };
  return [
    { ...common, size: 30, space: 80, values: (_, splits) => splits.map(clock) },
    { ...common, ...steps(show), label: unit, labelSize: 18, size: 66,
      values: (_, splits) => splits.map((value) => show(value)) },
  ];
}

// Shades the time in which memory was short.
function shade({ ctx, bbox, valToPos }) {
  const place = (second) =>
    Math.min(Math.max(valToPos(second, "x", true), bbox.left), bbox.left + bbox.width);
  ctx.save();
  live.samples.forEach(({ seconds, band }, at) => {
    const from = place(live.samples[at - 1]?.seconds ?? seconds);
    if (!band) return;
    ctx.fillStyle = colour(`band${band}`);
    ctx.fillRect(from, bbox.top, Math.max(place(seconds) - from, 1), bbox.height);
  });
  ctx.restore();
}

function options(picture, lines, width) {
  const value = (_, number) => (typeof number === "number" ? picture.show(number) : "–");
  const series = lines.map(({ label, at }) => {
    const bound = BOUNDS.includes(label);
    const stroke = bound ? colour("ink") : colour(`c${at % COLOURS}`);
    const dash = bound ? [5, 4] : DASHES[Math.floor(at / COLOURS) % DASHES.length];
    // What was offered lies beneath what became of it.
    const thick = ["offered", "expected"].includes(label) ? 4 : 1.6;
    return { label, stroke, dash, width: thick, value, points: { show: false } };
  });
  return {
    width,
    height: width < 480 ? 210 : 230,
    series: [{ label: "time", value: (_, at) => (at ? clock(at) : "–") }, ...series],
    axes: axes(picture),
    scales: {
      x: { time: true, range: (_, __, end) => [end - (KEPT - 1), end] },
      y: { range: (_, __, top) => [0, top > 0 ? top * 1.06 : 1] },
    },
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    hooks: { drawClear: [shade] },
  };
}

// A titled picture that follows the width of its place.
function picture(about) {
  const [holder, note] = [make("div"), make("p", {}, about.about)];
  const figure = make("figure", { class: "plot", id: `plot-${about.id}` },
    make("h3", {}, about.title), note, holder);
  const shown = { id: about.id, plot: null };
  let width = 0;
  live.plots.push(shown);
  function render(anew) {
    if (!width || !live.samples.length) return;
    const fit = fitting(about.lines(), about.show);
    const text = about.about + fit.note;
    if (note.textContent !== text) note.textContent = text;
    const values = fit.lines.map((line) => line.values);
    const data = [live.samples.map(({ seconds }) => seconds), ...values];
    const labels = fit.lines.map((line) => line.label).join();
    if (!anew && shown.labels === labels) {
      shown.plot.setData(data);
    } else {
      shown.plot?.destroy();
      shown.labels = labels;
      shown.plot = new uPlot(options(about, fit.lines, width), data, holder);
    }
    // Nobody points at a moment: the newest is told.
    const { plot } = shown;
    if (plot.cursor.left < 0) plot.setLegend({ idx: data[0].length - 1 });
  }
  withWidth(holder, (now) => {
    width = now;
    render(true);
  });
  return { figure, render };
}

function tile(name) {
  const value = make("b", {}, "–");
  const element = make("div", { class: "tile" }, value, make("span", {}, name));
  return {
    element,
    set(text, high = false) {
      value.textContent = text;
      element.classList.toggle("high", high);
    },
  };
}

function last(name) {
  return rate(name).at(-1) ?? 0;
}

function part(value, whole) {
  return whole > 0 ? `${Math.round((100 * value) / whole)} %` : "–";
}

const TILES = [
  ["memory band", (now) => [BANDS[now.band], now.band > 0]],
  ["of the memory held", (now) => {
    const [held, budget] = [count(now, "held"), count(now, "budget")];
    return [part(held, budget), held > budget];
  }],
  ["of the queue's slots used", (now) => {
    const [used, slots] = [count(now, "level queued"), count(now, "level slots")];
    return [part(used, slots), used >= slots];
  }],
  ["records offered per second", () => [SHOW.rate(last("offered"))]],
  ["records delivered per second", () => [SHOW.rate(last("delivered"))]],
  ["lost per second", () => {
    const lost = TABLES.reduce((sum, table) => sum + last(table), 0);
    return [SHOW.rate(lost), lost > 0];
  }],
  ["connections", (now) => [SHOW.records(count(now, "connections"))]],
  ["subscriptions", (now) => [SHOW.records(count(now, "subscriptions"))]],
].map(([name, read]) => ({ ...tile(name), read }));

// Who holds topics: names that clients have chosen, as texts.
function holders(shards) {
  const rows = shards.flatMap((shard) => shard.blocked_by);
  if (!rows.length) return make("p", { class: "soft" }, "No topic waits for a subscription.");
  const cell = (name, value) => make(name, {}, value);
  const body = rows.map(({ topic, session, address, subscription }) => make("tr", {},
    make("td", { class: "text" }, make("bdi", {}, topic)),
    ...[session, address, subscription].map((value) => cell("td", String(value)))));
  const heads = ["session", "address", "subscription"].map((name) => cell("th", name));
  const head = make("tr", {}, make("th", { class: "text" }, "topic waits for"), ...heads);
  return make("div", { class: "wide", tabindex: "0" },
    make("table", { class: "rows" }, make("thead", {}, head), make("tbody", {}, ...body)));
}

const state = make("span", { class: "soft small", role: "status" }, "asking …");
const held = make("div", { id: "holders" });
const pictures = PLOTS.map(picture);

function drawAll(anew) {
  pictures.forEach(({ render }) => render(anew));
}

function take(shards) {
  const now = sample(shards, Date.now() / 1000);
  const before = live.samples.at(-1);
  // A new process counts from nothing.
  if (before && count(now, "offered") < count(before, "offered")) live.samples = [];
  live.samples = [...live.samples, now].slice(-KEPT);
  live.ledger = shards;
  TILES.forEach(({ read, set }) => set(...read(now)));
  held.replaceChildren(holders(shards));
  drawAll(false);
}

async function turn() {
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    const answer = await fetch("ledger", { cache: "no-store", signal });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    take(await answer.json());
    const shards = live.ledger.length;
    state.textContent = `${shards} ${shards === 1 ? "shard" : "shards"}, once a second`;
    state.className = "soft small";
  } catch (error) {
    state.textContent = `No answer (${error.message}): the pictures are old. It is asked again.`;
    state.className = "bad small";
  }
  setTimeout(turn, PACE);
}

document.getElementById("page").append(
  make("header", {}, make("h1", {}, "Sluicegate live"), state),
  make("div", { class: "tiles" }, ...TILES.map(({ element }) => element)),
  make("div", { class: "plots" }, ...pictures.map(({ figure }) => figure)),
  make("section", { class: "holders" }, make("h2", {}, "Who holds topics"), held),
);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
turn();
