// Numbers as people read them, in texts and at axes, and elements made of text.

const NANO = 1e9;

function trim(number, digits = 3) {
  return String(Number(number.toPrecision(digits)));
}

function scaled(value, base, units) {
  let at = 0;
  while (Math.abs(value) >= base && at < units.length - 1) {
    value /= base;
    at += 1;
  }
  return [value, units[at]];
}

const SHOW = {
  records: (value) => Math.round(value).toLocaleString("en"),
  rate: (value) => {
    const [number, unit] = scaled(value, 1000, ["", "k", "M", "G"]);
    return trim(number) + unit;
  },
  bytes: (value) => {
    const [number, unit] = scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
    return `${trim(number, number < 1000 ? 3 : 4)} ${unit}`;
  },
  nanos: (value) => {
    const [number, unit] = scaled(value, 1000, ["ns", "µs", "ms", "s"]);
    return `${trim(number)} ${unit}`;
  },
  seconds: (value) => `${Number(value.toFixed(3))} s`,
  factor: (value) => value.toFixed(value % 0.1 ? 3 : 1),
  count: (value) => trim(value, 6),
};

const BANDS = ["normal", "pressure", "severe", "saturated"];

// An element with attributes and children; texts stay texts.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Calls `render(width)` now and whenever the element's width changes.
function withWidth(element, render) {
  let last = 0;
  const observer = new ResizeObserver(() => {
    const width = Math.floor(element.clientWidth);
    if (width !== last && width > 0) {
      last = width;
      render(width);
    }
  });
  observer.observe(element);
  return observer;
}

// Steps between the marks of an axis: whole numbers, and powers of two for bytes.
const WHOLE = Array.from({ length: 40 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));
const BINARY = Array.from({ length: 44 }, (_, at) => 2 ** at);

function steps(show) {
  if (show === SHOW.bytes) return { incrs: BINARY };
  return show === SHOW.records ? { incrs: WHOLE } : {};
}

function axisLook() {
  return {
    stroke: colour("soft"),
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { stroke: colour("grid"), width: 1 },
    font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif",
  };
}

// The axis of what is drawn over time.
function valueAxis(show, label) {
  return { ...axisLook(), ...steps(show), label, labelSize: 18, size: 66,
    values: (_, splits) => splits.map((value) => (value === null ? "" : show(value))) };
}
