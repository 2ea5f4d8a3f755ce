// The run over time and its latencies, drawn with uPlot.

const COLOURS = 8;
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];

// Every picture over time: what it shows and how its numbers are read.
const PLOTS = [
  { id: "publish", title: "Publishing", unit: "records/s", rate: true,
    about: "Offered to the broker, and what became of it. Held back: not even sent." },
  { id: "deliver", title: "Delivery", unit: "records/s", rate: true,
    about: "Over all subscribers: one record for a hundred of them counts a hundred times." },
  { id: "lost", title: "Losses by place and reason", unit: "records/s", rate: true,
    about: "Where records ended that were not delivered." },
  { id: "lag", title: "Lag by group of subscribers", unit: "records", show: "records",
    about: "Sequenced for them, neither delivered nor dropped yet." },
  { id: "backlog", title: "Fullest queue to one peer", unit: "bytes", show: "bytes",
    about: "The fullest of each group at the moment." },
  { id: "latency", title: "Latency from offer to receipt", unit: "time", show: "nanos",
    about: "Median and 99th percentile of what arrived in each interval." },
  { id: "jobs", title: "Publish queue", unit: "jobs", show: "records", bound: "pub_queue_total",
    about: "The most jobs queued, and publishes parked, in each interval; fullest shard." },
  { id: "queue", title: "Admission", unit: "bytes", show: "bytes", bound: "pub_inflight_bytes",
    about: "The most publish bytes in flight in each interval; fullest shard." },
  { id: "window", title: "Publishers' windows", unit: "bytes", show: "bytes",
    about: "The most bytes in flight of one client in each interval; without the client, on the "
      + "way or not read." },
  { id: "clients", title: "Queues of clients", unit: "entries", show: "records",
    about: "The most publishes queued for one worker, and events in one inbox, in each interval." },
  { id: "mesh", title: "Between shards", unit: "parcels", show: "records",
    about: "The most parcels on one way between two shards in each interval." },
  { id: "transport", title: "Transports to subscribers", unit: "bytes", show: "bytes",
    about: "The most bytes that one transport took and its peer had not received, in each "
      + "interval." },
  { id: "memory", title: "Memory held and its limit", unit: "bytes", show: "bytes",
    about: "The most that was held in each interval, and the budget times the pressure factor." },
  { id: "pressure", title: "Pressure factor and band", unit: "factor", show: "factor",
    about: "The factor scales the budget; the band says how short memory is." },
];

// The values of a column as they are drawn: rates per second out of totals, else base units.
function drawn(column, plot, seconds) {
  if (!plot.rate) {
    const scale = plot.id === "pressure" && column.name === "factor" ? 1000 : 1;
    return column.values.map((value) => (value === null ? null : value / scale));
  }
  return column.values.map((value, at) => {
    const step = at === 0 ? 0 : seconds[at] - seconds[at - 1];
    return step > 0 ? (value - column.values[at - 1]) / step : null;
  });
}

// Latencies come in pairs: one colour for each group, its median dashed.
function look(plot, at) {
  if (plot.id !== "latency") return stroke(at);
  return { ...stroke(Math.floor(at / 2)), dash: at % 2 ? [] : [4, 4] };
}

function stroke(at) {
  return { stroke: colour(`c${at % COLOURS}`), dash: DASHES[Math.floor(at / COLOURS) % 4] };
}

// Shades the intervals of a worse band, and marks when a group stalls or bursts.
function backdrop(run, seconds, bands) {
  return (plot) => {
    const { ctx, bbox } = plot;
    const place = (second) =>
      Math.min(Math.max(plot.valToPos(second, "x", true), bbox.left), bbox.left + bbox.width);
    const fill = (from, to, top, height) =>
      ctx.fillRect(place(from), top, Math.max(place(to) - place(from), 1), height);
    ctx.save();
    bands.forEach((band, at) => {
      if (!band || at + 1 >= seconds.length) return;
      ctx.fillStyle = colour(`band${band}`);
      fill(seconds[at], seconds[at + 1], bbox.top, bbox.height);
    });
    run.marks.forEach((mark, at) => {
      ctx.fillStyle = colour(`c${markColour(at)}`);
      const height = 3 * devicePixelRatio;
      const end = mark.to_ns === null ? seconds[seconds.length - 1] : mark.to_ns / NANO;
      fill(mark.from_ns / NANO, end, bbox.top + (at % 4) * (height + 2), height);
    });
    ctx.strokeStyle = colour("soft");
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    const stop = place(run.duration_ns / NANO);
    ctx.beginPath();
    ctx.moveTo(stop, bbox.top);
    ctx.lineTo(stop, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  };
}

function markColour(at) {
  return [3, 4, 6, 7][at % 4];
}

function axes(show, label) {
  const time = { label: "virtual time, s", labelSize: 18, size: 30,
    values: (_, splits) => splits.map((value) => trim(value, 6)) };
  return [{ ...axisLook(), ...time }, valueAxis(show, label)];
}

// Rate or level pictures: what uPlot needs, without the width.
function timePlot(run, plot, seconds, bands) {
  const show = SHOW[plot.show ?? "rate"];
  const all = run.series.columns.filter((column) => column.plot === plot.id);
  if (plot.id === "pressure") return pressurePlot(run, all, seconds, bands);
  const moves = (column) => column.values.some((value) => value > 0);
  const columns = all.filter(moves);
  // A name keeps its colour from picture to picture, drawn beside others or not.
  const place = new Map(all.map((column, at) => [column, at]));
  const still = all.filter((column) => !moves(column)).map((column) => column.name);
  const data = [seconds];
  const series = [{ label: "time", value: (_, value) => shown(SHOW.seconds, value) }];
  for (const column of columns) {
    data.push(drawn(column, plot, seconds));
    const value = (_, number) => shown(show, number);
    // What was offered lies beneath what became of it.
    const width = column.name === "offered" ? 4 : 1.6;
    series.push({ label: column.name, width, ...look(plot, place.get(column)), value,
      points: { show: false } });
  }
  const most = Math.max(...data.slice(1).flat().filter((value) => value !== null), 0);
  const notes = still.length ? [`Zero throughout: ${still.join(", ")}.`] : [];
  let top = most;
  if (plot.bound) {
    const limit = run.limits.find((key) => key.name === plot.bound).value;
    top = addBound(data, series, { limit, most, show, notes });
  } else if (plot.id === "memory") {
    top = fitLimit(data, series, notes);
  }
  const [x, y] = axes(show, plot.unit);
  const wide = plot.id === "latency" && wideRange(data.slice(1).flat());
  const options = {
    series,
    axes: [x, wide ? { ...y, splits: () => decades(...wide) } : y],
    scales: {
      x: { time: false },
      y: wide ? { distr: 3, range: wide } : { range: [0, top > 0 ? top * 1.06 : 1] },
    },
  };
  return { data, options, notes, most };
}

// Least and most, with some room, where one is so much greater that only powers show both.
function wideRange(values) {
  const some = values.filter((value) => value > 0);
  const [low, high] = [Math.min(...some), Math.max(...some)];
  return high > low * 20 ? [low / 1.5, high * 1.5] : null;
}

function shown(show, value) {
  return value === null || value === undefined ? "–" : show(value);
}

// A limit as a dashed line, where the picture can hold it.
function addBound(data, series, { limit, most, show, notes }) {
  if (limit > most * 4) {
    notes.push(`The limit, ${show(limit)}, is above the picture.`);
    return most;
  }
  data.push(data[0].map(() => limit));
  const value = () => show(limit);
  series.push({ label: "limit", width: 1.2, stroke: colour("ink"), dash: [5, 4], value,
    points: { show: false } });
  return Math.max(most, limit);
}

// The memory limit is a column of its own; where it is far above what is held it would flatten it.
function fitLimit(data, series, notes) {
  const at = series.findIndex((one) => one.label === "limit");
  const most = (values) => Math.max(...values.filter((value) => value !== null), 0);
  const [held, limit] = [most(data.find((_, index) => index && index !== at)), most(data[at])];
  if (limit <= held * 4) {
    Object.assign(series[at], { stroke: colour("ink"), dash: [5, 4], width: 1.2 });
    return Math.max(held, limit);
  }
  data.splice(at, 1);
  series.splice(at, 1);
  notes.push(`The limit, ${SHOW.bytes(limit)}, is above the picture.`);
  return held;
}

function pressurePlot(run, columns, seconds, bands) {
  const factor = columns.find((column) => column.name === "factor");
  const data = [seconds, factor.values.map((value) => value / 1000), bands];
  const steps = uPlot.paths.stepped({ align: 1 });
  const look = { width: 1.8, paths: steps, points: { show: false } };
  const series = [
    { label: "time", value: (_, value) => shown(SHOW.seconds, value) },
    { label: "factor", ...look, ...stroke(0), value: (_, value) => shown(SHOW.factor, value) },
    { label: "band", ...look, ...stroke(1), dash: [7, 4], scale: "band",
      value: (_, value) => shown((band) => BANDS[band], value) },
  ];
  const left = axes(SHOW.factor, "factor");
  const right = { ...axes((band) => BANDS[band] ?? "", "band")[1], scale: "band", side: 1,
    size: 74, grid: { show: false }, splits: () => [0, 1, 2, 3] };
  const scales = { x: { time: false }, y: { range: [0, 1.1] }, band: { range: [-0.15, 3.3] } };
  const changed = bands.some((band) => band > 0) || data[1].some((value) => value < 1);
  return { data, options: { series, axes: [...left, right], scales }, notes: [],
    most: changed ? 1 : 0 };
}

// The greatest latency that the best `part` of a group's records stay within.
function quantile(buckets, part) {
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  const rank = Math.max(1, Math.ceil(total * part - 1e-9));
  let seen = 0;
  for (const [top, count] of buckets) {
    seen += count;
    if (seen >= rank) return top;
  }
  return null;
}

// Latency over percentile, with as much room for the last percent as for all before it.
function percentilePlot(run) {
  const groups = run.latencies.filter((group) => group.buckets.length > 0);
  if (!groups.length) return null;
  const counts = groups.map((group) => group.buckets.reduce((sum, [, count]) => sum + count, 0));
  const end = Math.min(6, Math.log10(Math.max(...counts, 10)));
  const nines = Array.from({ length: 301 }, (_, at) => (at * end) / 300);
  const data = [nines];
  const percent = (x) => `${trim((1 - 10 ** -x) * 100, 7)} %`;
  const series = [{ label: "of records", value: (_, x) => shown(percent, x) }];
  groups.forEach((group, at) => {
    const last = Math.log10(counts[at]);
    data.push(nines.map((x) => (x > last + 1e-9 ? null : quantile(group.buckets, 1 - 10 ** -x))));
    series.push({ label: group.name, width: 1.8, ...stroke(at), points: { show: false },
      value: (_, value) => shown(SHOW.nanos, value) });
  });
  const all = data.slice(1).flat().filter((value) => value !== null);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const ends = [Math.max(1, low / 1.5), high * 1.5];
  const [x, y] = axes(SHOW.nanos, "latency");
  const splits = [0, Math.log10(2), 1, 2, 3, 4, 5, 6].filter((at) => at <= end);
  const options = {
    series,
    axes: [
      { ...x, label: "of records are at least as fast", splits: () => splits,
        values: (_, at) => at.map((value) => `${trim((1 - 10 ** -value) * 100, 7)}%`) },
      { ...y, splits: () => decades(...ends) },
    ],
    scales: { x: { time: false, range: [0, end] }, y: { distr: 3, range: ends } },
  };
  return { data, options, notes: [], most: high };
}

// As many marks in every decade as there is room for.
function decades(low, high) {
  const span = high / low;
  const marks = span > 2000 ? [1] : span > 30 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  const out = [];
  for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high; decade *= 10) {
    for (const step of marks) {
      if (decade * step >= low && decade * step <= high) out.push(decade * step);
    }
  }
  return out;
}

// A titled picture that follows the width of its place.
function plotPicture(run, { title, about, id }, made, context) {
  const holder = make("div", {});
  const lines = [about, ...made.notes].join(" ");
  const figure = make("figure", { class: "plot", id: `plot-${id}`, style: "margin:0" },
    make("h3", {}, title), make("p", {}, lines), holder);
  const shade = context.backdrop ? { drawClear: [context.backdrop] } : {};
  const sync = context.backdrop ? { key: context.sync, setSeries: false } : undefined;
  let plot = null;
  context.observers.push(withWidth(holder, (width) => {
    const height = width < 480 ? 210 : 230;
    if (plot) {
      plot.setSize({ width, height });
      return;
    }
    const cursor = { sync, drag: { x: true, y: false }, points: { size: 7 } };
    const options = { ...made.options, width, height, cursor, hooks: shade };
    plot = new uPlot(options, made.data, holder);
    context.plots.push({ id, plot });
  }));
  return figure;
}
