// Numbers as people read them, and elements made of text.

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
