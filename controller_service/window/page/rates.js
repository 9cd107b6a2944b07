// Makes rates of successive looks at lengths.

/**
 * @typedef {{scope: string, stream: string, atMs: number, epoch: number, bytes?: number, segments?: {id: string, bytes: number}[]}} Look
 * @typedef {{total: number | null, segments: Map<string, number>}} Rates bytes a second; null for what two looks do not tell yet
 */

/** Looks are compared over this time at most, so that a rate is of now. */
const windowMs = 10_000;

export class Rates {
  constructor() {
    /** @type {Map<string, Look[]>} */
    this.looks = new Map();
  }

  /** @param {Look} look @returns {Rates} */
  take(look) {
    const name = `${look.scope}/${look.stream}`;
    const kept = (this.looks.get(name) ?? []).filter((old) => old.epoch === look.epoch && look.atMs - old.atMs <= windowMs);
    this.looks.set(name, look.bytes === undefined ? kept : [...kept, look]);
    const first = kept[0];
    if (first === undefined || look.bytes === undefined || look.atMs <= first.atMs) return { total: null, segments: new Map() };
    const seconds = (look.atMs - first.atMs) / 1000;
    const before = new Map((first.segments ?? []).map((one) => [one.id, one.bytes]));
    const known = (look.segments ?? []).filter((one) => before.has(one.id));
    return {
      total: (look.bytes - first.bytes) / seconds,
      segments: new Map(known.map((one) => [one.id, (one.bytes - before.get(one.id)) / seconds])),
    };
  }
}
