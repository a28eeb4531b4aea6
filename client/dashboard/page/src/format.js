// Numbers and times for people. A number may be null (unknown), or a word that JSON has no number
// for: "NaN", "Infinity", "-Infinity".

export const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
export const isBroken = (value) => typeof value === 'string';

export function number(value) {
  if (value === null || value === undefined) return '–';
  if (!isNumber(value)) return String(value);
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e7) return value.toExponential(2).replace('e+', 'e');
  if (size >= 1000) return Math.round(value).toLocaleString('en-US').replaceAll(',', ' ');
  return String(Number(value.toPrecision(4)));
}

export function whole(value) {
  if (!isNumber(value)) return value === null || value === undefined ? '–' : String(value);
  return Math.round(value).toLocaleString('en-US').replaceAll(',', ' ');
}

export const percent = (value) => (isNumber(value) ? `${Math.round(value)} %` : '–');
export const watts = (value) => (isNumber(value) ? `${Math.round(value)} W` : '–');
export const degrees = (value) => (isNumber(value) ? `${Math.round(value)} °C` : '–');

export function bytes(value) {
  if (!isNumber(value)) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (value >= 1000 && unit + 1 < units.length) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : Number(value.toPrecision(3))} ${units[unit]}`;
}

// Memory of a GPU is told in units of 1024, as its makers do.
export const gibibytes = (value) =>
  (isNumber(value) ? `${(value / 2 ** 30).toFixed(value >= 10 * 2 ** 30 ? 0 : 1)} GB` : '–');

export function usd(value) {
  if (!isNumber(value)) return '–';
  if (value > 0 && value < 0.01) return `$${Number(value.toPrecision(2))}`;
  return `$${value.toFixed(2)}`;
}

export function spent(run) {
  if (!isNumber(run.spent_low_usd)) return '–';
  const low = usd(run.spent_low_usd);
  const high = usd(run.spent_high_usd);
  return low === high ? low : `${low}–${high.slice(1)}`;
}

export function duration(seconds) {
  if (!isNumber(seconds)) return '–';
  const s = Math.max(0, Math.floor(seconds));
  const two = (n) => String(n).padStart(2, '0');
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${two(Math.floor((s % 3600) / 60))}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

let ahead = 0; // of this computer's clock, as the server has it
export const setServerTime = (ms) => { ahead = ms - Date.now(); };
export const now = () => Date.now() + ahead;
export const since = (time) => (time ? (now() - Date.parse(time)) / 1000 : null);
export const ago = (time) => (time ? duration(since(time)) : '–');

export function clock(time) {
  if (!time) return '–';
  const date = new Date(time);
  const two = (n) => String(n).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// "lr=1e-4 rank=8", of the parameters that a batch gave a run; '' for none.
export const parametersText = (parameters) =>
  Object.entries(parameters || {}).map(([name, value]) => `${name}=${value}`).join(' ');

export function steps(run) {
  if (!isNumber(run.step)) return '–';
  return isNumber(run.total_steps) ? `${whole(run.step)} / ${whole(run.total_steps)}` : whole(run.step);
}

// A state is a sign and a word; its colour is only a help.
const SIGNS = {
  launching: '◌', pending: '◌', queued: '◔', running: '●', stopping: '◍', retrying: '↻',
  succeeded: '✓', failed: '✕', stopped: '■', limit: '▲', lost: '?',
};
export const sign = (status) => SIGNS[status] || '·';
export const hasEnded = (run) =>
  ['succeeded', 'failed', 'stopped', 'limit', 'lost'].includes(run.status);

// Of several GPUs: the mean of their use, the sums of memory and power, the hottest.
export function gpuFacts(run) {
  const gpus = run.gpus || [];
  const values = (name) => gpus.map((gpu) => gpu[name]).filter(isNumber);
  const sum = (list) => (list.length ? list.reduce((a, b) => a + b, 0) : null);
  const use = values('utilization_percent');
  return {
    count: gpus.length,
    use: use.length ? sum(use) / use.length : null,
    used: sum(values('memory_used_bytes')),
    total: sum(values('memory_total_bytes')),
    power: sum(values('power_w')),
    temperature: values('temperature_c').length ? Math.max(...values('temperature_c')) : null,
  };
}
