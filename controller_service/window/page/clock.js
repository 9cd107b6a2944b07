// Tells the controller's time: the clock of a browser's machine may be wrong, and the times in answers are not its own.

const wrongFromMs = 2_000;
let aheadMs = 0;

/** Compares the clocks. Answers tell their time in whole seconds, so small differences are none. @param {Response} answer */
export function noteTime(answer) {
  const differenceMs = Date.parse(answer.headers.get("Date") ?? "") - Date.now();
  if (!Number.isNaN(differenceMs)) aheadMs = Math.abs(differenceMs) < wrongFromMs ? 0 : differenceMs;
}

/** @returns {number} milliseconds since 1970 */
export function controllerNowMs() {
  return Date.now() + aheadMs;
}
