// Waiting for a state, never for a time: every wait has a deadline and says what did not come.

const POLL_MS = 10;

/** A promise with a deadline. `start` gets the two ways to settle it. */
export function within(ms, what, start) {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`waited ${ms} ms in vain for ${what}`));
    const timer = setTimeout(late, ms);
    const settle = (how) => (value) => {
      clearTimeout(timer);
      how(value);
    };
    start(settle(resolve), settle(reject));
  });
}

/** Looks again and again until `look` answers something true, and answers that. */
export async function until(ms, what, look) {
  const deadline = performance.now() + ms;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (performance.now() > deadline) throw new Error(`waited ${ms} ms in vain for ${what}`);
    await new Promise((again) => setTimeout(again, POLL_MS));
  }
}
