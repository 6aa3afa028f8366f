"use strict";
// SPDX-License-Identifier: MIT OR Apache-2.0
// Numbers as people read them, and elements of the page. Text goes in as text: no name of a volume becomes markup.

const NONE = "–";

/** A number with three digits at most, or as many as it has before the point. */
function digits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 99.95) return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
  if (size >= 9.995) return value.toFixed(1);
  return size >= 0.01 ? value.toFixed(2) : value.toPrecision(1);
}

/** A number with a unit that grows in steps. */
function scaled(value, step, units) {
  let at = 0;
  while (Math.abs(value) >= step * 0.9995 && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  return digits(value) + units[at];
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const or = (say) => (value) => (known(value) ? say(value) : NONE);

const bytes = or((value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]));
const rate = or((value) => scaled(value, 1024, [" B/s", " KiB/s", " MiB/s", " GiB/s"]));
const count = or((value) => scaled(value, 1000, ["", "k", "M", "G"]));
const percent = or((value) => (value > 0 && value < 0.9995 ? (100 * value).toFixed(1) : String(Math.round(100 * value))) + " %");
const micros = or((value) => (value >= 1e6 ? digits(value / 1e6) + " s" : value >= 1000 ? digits(value / 1000) + " ms" : digits(value) + " µs"));
const times = or((value) => value.toFixed(2) + " ×");
const whole = or((value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ","));

/** A share, none without a whole. */
const share = (part, all) => (all > 0 ? part / all : null);

/** A time span in the two largest units. */
function span(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([length]) => seconds >= length);
  if (first < 0) return "0 s";
  const said = [];
  for (const [length, name] of units.slice(first, first + 2)) {
    const number = Math.floor(seconds / length);
    seconds -= number * length;
    if (number > 0) said.push(number + " " + name);
  }
  return said.join(" ");
}

const two = (value) => String(value).padStart(2, "0");

/** A time of the day, with seconds where they matter. */
function clock(ms, seconds) {
  const at = new Date(ms);
  return two(at.getHours()) + ":" + two(at.getMinutes()) + (seconds ? ":" + two(at.getSeconds()) : "");
}

/** An element with attributes and content; a list of classes is `class`. */
function element(name, attributes = {}, ...content) {
  return filled(document.createElement(name), attributes, content);
}

/** An element of a picture. */
function drawn(name, attributes = {}, ...content) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, content);
}

function filled(made, attributes, content) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content.flat().filter((it) => it !== null));
  return made;
}
