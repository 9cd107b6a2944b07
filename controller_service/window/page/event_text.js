// Puts the bytes of an event into words: text, JSON, record (docs/records.md) or hexadecimal.

import { indentedJson } from "./json_text.js";

const RECORD = { magic: 0xe7, version: 2, head: 19 };

/** @param {string} base64 @returns {Uint8Array} */
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

/** @param {Uint8Array} bytes @returns {string} with what is no UTF-8 as � */
export function text(bytes) {
  return new TextDecoder().decode(bytes);
}

/** @param {Uint8Array} bytes @returns {string} 16 a line, with their offsets and what can be printed */
export function hex(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += 16) {
    const row = [...bytes.slice(start, start + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const shown = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${start.toString(16).padStart(4, "0")}  ${digits.padEnd(47)}  ${shown}`);
  }
  return lines.join("\n");
}

/** @param {Uint8Array} bytes @param {boolean} isWhole @returns {string} indented, or what is wrong with it */
export function json(bytes, isWhole) {
  if (!isWhole) return `${text(bytes)} …`;
  try {
    return indentedJson(text(bytes));
  } catch (error) {
    return `no JSON (${error.message}): ${text(bytes)}`;
  }
}

/** @param {Uint8Array} bytes @returns {string} key, time, headers and value, or why it is no record */
export function record(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (bytes.length < RECORD.head || bytes[0] !== RECORD.magic || bytes[1] !== RECORD.version) return "no record of version 2";
  const present = bytes[2];
  const [keyBytes, headerBytes] = [view.getUint32(11), view.getUint32(15)];
  const headersAt = RECORD.head + keyBytes;
  const key = present & 1 ? text(bytes.slice(RECORD.head, headersAt)) : null;
  const value = present & 2 ? text(bytes.slice(headersAt + headerBytes)) : null;
  const time = present & 8 ? moment(view.getBigInt64(3)) : null;
  const lines = [`key: ${key ?? "null"}`, `time: ${time ?? "null"}`];
  if (present & 4) lines.push(`headers: ${count(view, headersAt, headerBytes)}`);
  return [...lines, value === null ? "value: null (a tombstone)" : `value: ${value}`].join("\n");
}

/** @param {bigint} microseconds since 1970 @returns {string} as a date where calendars have one */
function moment(microseconds) {
  const date = new Date(Number(microseconds / 1000n));
  return Number.isNaN(date.getTime()) ? `${microseconds} microseconds since 1970` : date.toISOString();
}

function count(view, at, length) {
  return length >= 4 && at + 4 <= view.byteLength ? view.getUint32(at) : "not shown";
}

/** @type {Record<string, (bytes: Uint8Array, isWhole: boolean) => string>} */
export const formats = { text: (bytes) => text(bytes), json, record: (bytes) => record(bytes), hex: (bytes) => hex(bytes) };
