// The AIMaster's message as objects. On the way columns of equal values are one value, names are ranges, bytes kilobytes.

const KILOBYTES = new Set(["memory", "memory_limit", "bytes", "received", "sent", "transferred"]);

/** "chief-0 worker-0:2" → its four names. */
export function names(text) {
  return text.split(" ").filter(Boolean).flatMap((range) => {
    const [, kind, low, high] = /^(.*)-(\d+)(?::(\d+))?$/.exec(range);
    return Array.from({ length: (high ?? low) - low + 1 }, (_, index) => `${kind}-${Number(low) + index}`);
  });
}

function column(name, values, count) {
  const all = Array.isArray(values) ? values : Array(count).fill(values);
  return KILOBYTES.has(name) ? all.map((value) => 1000 * value) : all;
}

function objects({ count, names: ranges, ...columns }) {
  const rows = names(ranges).map((name) => ({ name }));
  for (const [name, values] of Object.entries(columns)) {
    column(name, values, rows.length).forEach((value, index) => {
      rows[index][name] = value;
    });
  }
  return rows;
}

export function decode(message) {
  const { count, ...slots } = message.slots;
  const trainers = objects(message.trainers);
  const times = trainers.filter((one) => one.state === "running" && one.step_seconds > 0).map((one) => one.step_seconds).sort((a, b) => a - b);
  return {
    ...message,
    ps: objects(message.ps),
    trainers,
    others: objects(message.others),
    slots: Object.fromEntries(Object.entries(slots).map(([name, values]) => [name, column(name, values, count)])),
    moving: new Set(message.moving),
    counts: { ps: message.ps.count, trainers: message.trainers.count },
    median: times.length ? times[times.length >> 1] : 0,
  };
}
