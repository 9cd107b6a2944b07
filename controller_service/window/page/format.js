// Puts numbers into words. What is not known is a dash, never zero.

import { controllerNowMs } from "./clock.js";

const NOT_KNOWN = "–";
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return NOT_KNOWN;
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < SIZES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${SIZES[unit]}`;
}

/** @param {number | null | undefined} bytesPerSecond */
export function rate(bytesPerSecond) {
  return bytesPerSecond === null || bytesPerSecond === undefined ? NOT_KNOWN : `${size(bytesPerSecond)}/s`;
}

/** @param {number | null | undefined} number */
export function count(number) {
  return number === null || number === undefined ? NOT_KNOWN : number.toLocaleString("en-GB");
}

/** @param {number | null | undefined} milliseconds a length of time */
export function span(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return NOT_KNOWN;
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** @param {number | null | undefined} milliseconds a time since 1970 */
export function ago(milliseconds) {
  return milliseconds ? `${span(controllerNowMs() - milliseconds)} ago` : NOT_KNOWN;
}

/** @param {number | null | undefined} milliseconds a time since 1970 */
export function moment(milliseconds) {
  if (!milliseconds) return NOT_KNOWN;
  const text = new Date(milliseconds).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
}

/** @param {number} number of @param {string} word @param {string} many its plural, if that is not the word and an s */
export function counted(number, word, many = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : many}`;
}
