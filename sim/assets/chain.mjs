// The chain as a picture: boxes beside each other where there is room, rows where there is not.

const WIDE = 860;

function heldText(held) {
  const unit = held.unit === "bytes" ? SHOW.bytes : (value) => SHOW.records(value);
  const most = unit(held.value) + (held.unit === "bytes" ? "" : ` ${held.unit}`);
  return [most, held.limit === null ? held.what : `of ${unit(held.limit)}`, held.what];
}

function heldLine(held) {
  return [...new Set(heldText(held))].join(" ");
}

function lossText(loss) {
  return [`${SHOW.records(loss.records)} ${loss.kind}`, loss.reason];
}

function share(place) {
  const bounded = place.held.filter((held) => held.limit);
  return Math.max(0, ...bounded.map((held) => Math.min(1, held.value / held.limit)));
}

function words(text, x, y, kind = "", anchor = "start") {
  return draw("text", { x, y, class: kind, "text-anchor": anchor }, text);
}

function sign(place, x, y) {
  const circle = draw("circle", { cx: x, cy: y, r: 9.5, class: "mark" });
  return [circle, words(place.mark, x, y + 4.5, "sign")];
}

function level(place, x, y, width) {
  const part = share(place);
  const full = part > 0.99 ? "level full" : "level";
  const bar = (length, kind) =>
    draw("rect", { x, y, width: length, height: 5, rx: 2, class: kind });
  return [bar(width, "track"), bar(Math.max(part * width, part > 0 ? 2 : 0), full)];
}

// What a screen reader and a pointer get: everything that is known of a place.
function tip(place) {
  const held = place.held.map((held) => `at most ${heldLine(held)}`);
  const lost = place.losses.map((loss) => lossText(loss).join(" "));
  const lines = [`${place.mark} ${place.name}: ${place.holds}`, `when full: ${place.when_full}`];
  return draw("title", {}, [...lines, ...held, ...lost].join("\n"));
}

function box(place, x, y, width) {
  const lossy = place.losses.length > 0 ? " lossy" : "";
  const group = draw("g", { "data-mark": place.mark }, tip(place));
  group.append(
    draw("rect", { x, y, width, height: 94, rx: 6, class: `box${lossy}` }),
    ...sign(place, x + 17, y + 18),
    words(place.name, x + 32, y + 23, "name"),
  );
  const lines = place.held.length ? heldText(place.held[0]) : ["—", place.note];
  group.append(words(lines[0], x + 9, y + 50), words(lines[1], x + 9, y + 67, "dim"));
  if (place.held.some((held) => held.limit)) {
    group.append(...level(place, x + 9, y + 80, width - 18));
  }
  if (lossy) group.append(...leak(place, x, y + 94, width));
  return group;
}

// What ended at a box, below an arrow out of it.
function leak(place, x, y, width) {
  const middle = x + width / 2;
  const parts = [
    draw("path", { d: `M${middle} ${y}v14`, class: "way out" }),
    draw("path", { d: `M${middle - 5} ${y + 13}h10l-5 8z`, class: "tip out" }),
  ];
  place.losses.forEach((loss, at) => {
    const [many, why] = lossText(loss);
    const top = y + 38 + at * 36;
    parts.push(words(many, middle, top, "lost", "middle"));
    parts.push(words(why, middle, top + 15, "dim", "middle"));
  });
  return parts;
}

function arrow(x, y) {
  return [
    draw("path", { d: `M${x} ${y}h8`, class: "way" }),
    draw("path", { d: `M${x + 7} ${y - 4}v8l6 -4z`, class: "tip" }),
  ];
}

// A place as a row: name, how full, what ended here. Answers its height.
function row(place, y, width, into) {
  const group = draw("g", { "data-mark": place.mark }, tip(place));
  const height = 46 + place.losses.length * 17 + Math.max(0, place.held.length - 1) * 17;
  const lossy = place.losses.length > 0 ? " lossy" : "";
  group.append(
    draw("rect", { x: 1, y, width: width - 2, height, rx: 6, class: `box${lossy}` }),
    ...sign(place, 18, y + 19),
    words(place.name, 34, y + 24, "name"),
  );
  let down = y + 24;
  for (const held of place.held) {
    group.append(words(heldLine(held), width - 12, down, "", "end"));
    down += 17;
  }
  if (!place.held.length) group.append(words(place.note, width - 12, down, "dim", "end"));
  if (place.held.some((held) => held.limit)) {
    group.append(...level(place, 34, y + height - 12, width - 46));
  }
  down = y + 41 + Math.max(0, place.held.length - 1) * 17 - 1;
  for (const loss of place.losses) {
    group.append(words(lossText(loss).join(" · "), 34, down, "lost"));
    down += 17;
  }
  into.append(group);
  return height;
}

function canvas() {
  return draw("svg", { class: "chain", role: "img", "aria-label": "The chain of checkpoints" });
}

function wideChain(chain, width) {
  const along = chain.filter((place) => place.side !== "over all");
  const gap = 16;
  const size = (width - gap * (along.length - 1)) / along.length;
  const svg = canvas();
  let side = "";
  along.forEach((place, at) => {
    const x = at * (size + gap);
    if (place.side !== side) {
      side = place.side;
      svg.append(words(side, x, 12, "dim"));
    }
    svg.append(box(place, x, 22, size));
    if (at > 0) svg.append(...arrow(x - gap + 1, 68));
  });
  const deepest = Math.max(0, ...along.map((place) => place.losses.length));
  let y = 22 + 94 + (deepest ? 32 + deepest * 36 : 14);
  svg.append(words("over all", 0, y + 4, "dim"));
  y += 12;
  for (const place of chain.filter((place) => place.side === "over all")) {
    y += row(place, y, width, svg) + 6;
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${y}`);
  return svg;
}

function narrowChain(chain, width) {
  const svg = canvas();
  let y = 2;
  let side = "";
  for (const place of chain) {
    if (place.side !== side) {
      side = place.side;
      svg.append(words(side, 2, y + 14, "dim"));
      y += 20;
    }
    y += row(place, y, width, svg);
    const last = place.mark === "7" || place.side === "over all";
    if (!last) svg.append(draw("path", { d: `M18 ${y + 1}v6`, class: "way" }));
    y += 8;
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${y}`);
  return svg;
}

function chainPicture(chain, observers) {
  const holder = make("div", { class: "picture" });
  const render = (width) => {
    const picture = width >= WIDE ? wideChain(chain, width) : narrowChain(chain, width);
    holder.replaceChildren(picture);
  };
  observers.push(withWidth(holder, render));
  return holder;
}
