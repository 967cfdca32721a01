// Quantities for people, written as the command line writes them.

export function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

/** Three digits that say something: 18,840 · 412 · 8.05 · 0.041. */
export function plain(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return count(value);
  if (size >= 10) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  return value.toPrecision(2);
}

/** 18.8 k, 91.0 M: where there is no room. */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  for (const [size, letter] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (Math.abs(value) >= size) return (value / (letter === " k" ? 1e3 : size)).toFixed(1) + letter;
  }
  return plain(value);
}

export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  let rest = value;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(rest) < 1000) return `${rest >= 10 || unit === "B" ? rest.toFixed(0) : rest.toFixed(1)} ${unit}`;
    rest /= 1000;
  }
  return `${rest.toFixed(1)} TB`;
}

export const rate = (value) => `${bytes(value)}/s`;

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value < 0.001 && value > 0) return `${(1e6 * value).toFixed(0)} µs`;
  if (value < 0.01 && value > 0) return `${(1e3 * value).toFixed(1)} ms`;
  if (value < 1) return `${(1e3 * value).toFixed(0)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  return clockwork(value);
}

/** 83 → 1:23; 3 700 → 1:01:40. */
export function clockwork(value) {
  const whole = Math.floor(value);
  const two = (part) => String(part).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** How long something will take, as one says it. */
export function about(value) {
  if (value < 90) return `${Math.max(1, Math.round(value))} s`;
  if (value < 90 * 60) return `${Math.round(value / 60)} min`;
  if (value < 48 * 3600) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86400).toFixed(1)} days`;
}

export const share = (value) => `${value > 0 && value < 0.0995 ? (100 * value).toFixed(1) : Math.round(100 * value)} %`;
/** Of a PS, seconds in which an op ran for a trainer, per second: those of several trainers may run, or wait, at once. */
export const busy = (value, words = true) => value > 1 ? `${value.toFixed(1)}${words ? " ops at once" : " ops"}` : `${share(value)}${words ? " busy" : ""}`;
export const cores = (value) => (value >= 10 ? value.toFixed(0) : value.toFixed(2));

export function clock(unix, withSeconds = true) {
  return new Date(1000 * unix).toLocaleTimeString([], {
    hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined, hourCycle: "h23",
  });
}

/** The time of day; with the date when that is another day. */
export function moment(unix) {
  const date = new Date(1000 * unix);
  const today = new Date().toDateString() === date.toDateString();
  return today ? clock(unix) : `${date.toLocaleDateString([], { month: "short", day: "numeric" })} ${clock(unix, false)}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** `scale-up PS 2 → 4`; where the workers change with the PS, `scale-up PS 2 → 4, workers 3 → 1`. */
export function scaling(one) {
  const size = one.from !== one.to ? ` ${one.from} → ${one.to}` : "";
  const workers = one.workers ? `, workers ${one.workers.join(" → ")}` : "";
  return `${one.kind} ${one.role === "ps" ? "PS" : "workers"}${size}${workers}`;
}
