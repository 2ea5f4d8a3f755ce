// The page: an index of runs, and one run at a time.

const PAGE = JSON.parse(document.getElementById("data").textContent);
const VERDICTS = {
  0: ["good", "✓ holds"],
  1: ["bad", "✗ an expectation does not hold"],
  2: ["bad", "✗ refused"],
  3: ["bad", "✗ a safety judge convicts"],
  4: ["bad", "✗ a liveness judge convicts"],
  5: ["bad", "✗ crashed"],
};
// What is drawn now; tests read it.
const shownNow = { document: PAGE, run: null, plots: [] };
window.sluicegate = shownNow;
let observers = [];

function verdict(run) {
  const [kind, text] = VERDICTS[run.exit] ?? ["bad", `exit ${run.exit}`];
  return make("span", { class: `verdict ${kind}` }, text);
}

function table(heads, rows, texts = 1) {
  const cell = (name) => (value, at) =>
    make(name, at < texts ? { class: "text" } : {}, value instanceof Node ? value : String(value));
  const head = make("tr", {}, ...heads.map(cell("th")));
  const body = rows.map((row) => make("tr", {}, ...row.map(cell("td"))));
  const inside = make("table", { class: "rows" },
    make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "wide", tabindex: "0" }, inside);
}

function sum(table) {
  return Object.values(table).reduce((all, tally) => all + tally.records, 0);
}

function tiles(run) {
  const { books, peaks, subscribers } = run;
  const slowest = Math.max(...subscribers.map((row) => row.latency_p99_ns ?? 0));
  const away = sum(books.refused) + sum(books.shed) + sum(books.evicted);
  const entries = [
    [SHOW.records(books.offered.records), "records offered"],
    [SHOW.records(away), "refused, shed or evicted"],
    [SHOW.records(books.delivered.records), "deliveries"],
    [SHOW.records(sum(books.dropped)), "deliveries dropped"],
    [slowest ? SHOW.nanos(slowest) : "–", "slowest group's p99"],
    [SHOW.bytes(peaks.held_bytes), "held at most"],
  ];
  const tile = ([value, name]) =>
    make("div", { class: "tile" }, make("b", {}, value), make("span", {}, name));
  return make("div", { class: "tiles" }, ...entries.map(tile));
}

function marksKey(run) {
  const keys = run.marks.map((mark, at) => {
    const swatch = make("i", { style: `background:var(--c${markColour(at)});height:4px` });
    const end = mark.to_ns === null ? "for good" : `to ${SHOW.seconds(mark.to_ns / NANO)}`;
    const from = SHOW.seconds(mark.from_ns / NANO);
    return make("span", {}, swatch, `${mark.what}, from ${from} ${end}`);
  });
  const bands = [1, 2, 3].filter((band) => run.memory.some((one) => one.band === BANDS[band]));
  for (const band of bands) {
    const swatch = make("i", { style: `background:var(--band${band})` });
    keys.push(make("span", {}, swatch, `memory band ${BANDS[band]}`));
  }
  keys.push(make("span", {}, "┊ publishers stop"));
  return make("div", { class: "keys" }, ...keys);
}

function overTime(run) {
  const section = make("section", {}, make("h2", {}, "Over time"));
  if (!run.series) return section;
  const seconds = run.series.at_ns.map((at) => at / NANO);
  const bands = run.series.columns.find((column) => column.name === "band").values;
  const context = { observers, plots: shownNow.plots, sync: run.name,
    backdrop: backdrop(run, seconds, bands) };
  const quiet = [];
  const figures = [];
  for (const plot of PLOTS) {
    const made = timePlot(run, plot, seconds, bands);
    if (made.most > 0) figures.push(plotPicture(run, plot, made, context));
    else quiet.push(plot.title.toLowerCase());
  }
  section.append(
    make("p", { class: "soft small" }, "Drag across a picture to look closer, double-click to go "
      + "back; a name in a legend hides its line."),
    marksKey(run), make("div", { class: "plots" }, ...figures));
  if (quiet.length) {
    section.append(make("p", { class: "soft small" }, `Nothing to draw: ${quiet.join(", ")}.`));
  }
  return section;
}

function latencies(run) {
  const section = make("section", {}, make("h2", {}, "Latency"));
  const made = percentilePlot(run);
  if (!made) return section.append(make("p", {}, "Nothing was received.")) ?? section;
  const parts = [0.5, 0.9, 0.99, 0.999, 1];
  const rows = run.latencies.map((group) => [group.name, ...parts.map((part) => {
    const value = quantile(group.buckets, part);
    return value === null ? "–" : SHOW.nanos(value);
  })]);
  const about = { id: "percentiles", title: "Latency by percentile",
    about: "From offer to receipt, over the whole run." };
  section.append(
    plotPicture(run, about, made, { observers, plots: shownNow.plots }),
    table(["subscribers", "p50", "p90", "p99", "p99.9", "most"], rows));
  return section;
}

function peers(run) {
  const number = SHOW.records;
  const publishers = run.publishers.map((row) => [row.name, number(row.peers),
    number(row.offered), number(row.refused), number(row.shed), number(row.held_back)]);
  const subscribers = run.subscribers.map((row) => [row.name, number(row.peers),
    number(row.expected), number(row.delivered), number(row.dropped), number(row.lag),
    number(row.closed)]);
  return make("section", {}, make("h2", {}, "Peers, in records"),
    table(["publishers", "peers", "offered", "refused", "shed", "held back"], publishers),
    table(["subscribers", "peers", "expected", "delivered", "dropped", "lag", "closed"],
      subscribers));
}

function checkTable(checks) {
  const rows = checks.map((check) => [
    make("b", { class: check.holds ? "good" : "bad" }, check.holds ? "✓ holds" : "✗ fails"),
    check.what, check.due, check.found]);
  return table(["", "what", "expected", "found"], rows, 3);
}

function expectations(run) {
  const { checks } = run.expectations;
  const good = checks.filter((check) => check.holds);
  const bad = checks.filter((check) => !check.holds);
  const all = `Expectations: ${good.length} of ${checks.length} hold`;
  const section = make("section", { id: "expectations" }, make("h2", {}, all));
  if (run.conviction) {
    section.append(make("p", {}, "Not compared: a judge stopped the run."));
    return section;
  }
  if (bad.length) section.append(checkTable(bad));
  if (good.length) {
    const which = bad.length ? `the ${good.length} that hold` : "all of them";
    section.append(make("details", {}, make("summary", {}, which), checkTable(good)));
  }
  return section;
}

function judges(run) {
  const items = run.judges.map(({ name, promise, verdict: said }) => {
    const kind = { content: "good", convicts: "bad" }[said] ?? "soft";
    return make("li", {}, make("b", { class: kind }, said), ` ${name}: ${promise}`);
  });
  const section = make("section", {}, make("h2", {}, "Judges"),
    make("ul", { class: "checks" }, ...items));
  const { conviction } = run;
  if (conviction) {
    const when = SHOW.seconds(conviction.at_ns / NANO);
    section.append(
      make("p", { class: "bad" }, `${conviction.judge} convicts at ${when}: ${conviction.what}`),
      make("p", { class: "soft small" }, "The last events before it:"),
      make("pre", {}, conviction.events.join("\n")));
  }
  return section;
}

function repeat(run) {
  const section = make("section", {}, make("h2", {}, "Repeat it"),
    make("pre", { class: "wrap" }, run.command));
  const facts = [`seed ${run.seed}`];
  if (run.tape) facts.push(`tape ${run.tape}`, `${SHOW.records(run.facts)} events`);
  facts.push(`version ${PAGE.version}`);
  section.append(make("p", { class: "soft small" }, facts.join(" · ")));
  const changed = run.limits.filter((key) => key.value !== key.default);
  if (changed.length) {
    const rows = changed.map((key) => [key.name, key.help, key.unit, key.value, key.default]);
    section.append(make("h3", {}, "Limits that are not the default"),
      table(["key", "what it does", "unit", "here", "default"], rows, 3));
  }
  section.append(make("details", {}, make("summary", {}, `Scenario ${run.file}`),
    make("pre", {}, run.scenario)));
  return section;
}

function runView(at) {
  const run = PAGE.runs[at];
  const many = PAGE.runs.length > 1;
  const link = (to, text) => make("a", { href: `#run-${to}` }, text);
  const nav = make("nav", {}, make("span", {}, "Sluicegate · overload report"));
  if (many) {
    nav.append(make("a", { href: "#" }, `all ${PAGE.runs.length} stories`));
    if (at > 0) nav.append(link(at - 1, "‹ previous"));
    if (at + 1 < PAGE.runs.length) nav.append(link(at + 1, "next ›"));
  }
  const parts = [nav, make("h1", {}, run.title), make("p", { class: "soft" }, run.name),
    verdict(run)];
  if (run.failure) {
    parts.push(make("pre", { class: "wrap" }, run.failure), make("p", {}, run.about), repeat(run));
    return parts;
  }
  const picture = make("section", {}, make("h2", {}, "The chain: most held, and what ended where"),
    chainPicture(run.chain, observers));
  const verdicts = [expectations(run), judges(run)];
  const numbers = [picture, overTime(run), latencies(run), peers(run)];
  const order = run.exit === 0 ? [...numbers, ...verdicts] : [...verdicts, ...numbers];
  parts.push(make("p", {}, run.about), tiles(run), ...order, repeat(run));
  return parts;
}

function indexView() {
  const good = PAGE.runs.filter((run) => run.exit === 0).length;
  const rows = PAGE.runs.map((run, at) => {
    const name = make("a", { href: `#run-${at}` }, run.name);
    const kind = run.exit === 0 ? "good" : "bad";
    const said = make("b", { class: `least ${kind}` }, run.exit === 0 ? "✓ holds" : "✗ fails");
    const books = run.books;
    const numbers = books
      ? [books.offered.records, books.delivered.records, sum(books.dropped),
        sum(books.refused) + sum(books.shed) + sum(books.evicted)].map(SHOW.records)
      : ["–", "–", "–", "–"];
    return [said, make("span", {}, name, make("br"), run.title), ...numbers];
  });
  return [
    make("nav", {}, make("span", {}, "Sluicegate · overload report")),
    make("h1", {}, `${good} of ${PAGE.runs.length} stories hold`),
    table(["", "story", "offered", "delivered", "dropped", "turned away"], rows, 2),
    make("p", { class: "soft small" }, `version ${PAGE.version}`),
  ];
}

function render() {
  observers.forEach((observer) => observer.disconnect());
  shownNow.plots.forEach(({ plot }) => plot.destroy());
  observers = [];
  shownNow.plots = [];
  const asked = /^#run-(\d+)$/.exec(location.hash);
  const at = PAGE.runs.length === 1 ? 0 : asked && Number(asked[1]);
  const run = at === null ? null : PAGE.runs[at];
  shownNow.run = run ? at : null;
  document.title = run ? `${run.name} · Sluicegate` : "Sluicegate report";
  document.getElementById("page").replaceChildren(...(run ? runView(at) : indexView()));
  scrollTo(0, 0);
}

addEventListener("hashchange", render);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
render();
