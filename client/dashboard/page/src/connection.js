// The one connection to gpuctl: events in, requests out. The token stays in this page's address and
// goes nowhere but to the server that the page came from.
const token = new URLSearchParams(location.search).get('token') || '';
const SILENT_MS = 25000; // gpuctl speaks every 10 s

export class Connection {
  // `take(event, data)` gets each event; `tell(state)` "live" or "lost" when that changes.
  constructor(take, tell) {
    this.take = take;
    this.tell = tell;
    this.runs = null;
    this.source = null;
    this.state = '';
    this.heard = 0;
    setInterval(() => {
      if (this.source && performance.now() - this.heard > SILENT_MS) this.open();
    }, 5000);
  }

  // Listens to the list, and to all of these runs.
  watch(runs) {
    const wanted = runs.join(',');
    if (this.runs === wanted) return;
    this.runs = wanted;
    this.open();
  }

  open() {
    if (this.source) this.source.close();
    const source = new EventSource(
      `/events?token=${encodeURIComponent(token)}&runs=${encodeURIComponent(this.runs)}`);
    this.source = source;
    this.heard = performance.now();
    for (const name of ['snapshot', 'run', 'gone', 'totals', 'waiting', 'detail', 'series', 'actions', 'notice',
      'alive']) {
      source.addEventListener(name, (event) => {
        if (source !== this.source) return;
        this.heard = performance.now();
        this.become('live');
        this.take(name, JSON.parse(event.data));
      });
    }
    source.onerror = () => {
      if (source !== this.source) return;
      this.become('lost');
      // The browser gives up after some errors, such as a refusal.
      if (source.readyState === EventSource.CLOSED) {
        setTimeout(() => { if (source === this.source) this.open(); }, 2000);
      }
    };
  }

  become(state) {
    if (state === this.state) return;
    this.state = state;
    this.tell(state);
  }
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, {
      ...options, headers: { Authorization: `Bearer ${token}` }, referrerPolicy: 'no-referrer',
    });
  } catch {
    throw new Error('gpuctl dashboard does not answer');
  }
  const json = await answer.json().catch(() => null);
  if (answer.ok && json) return json;
  throw new Error(json && json.error ? json.error.message : `gpuctl answered ${answer.status}`);
}

export const searchRuns = (filter, offset) =>
  ask(`/api/runs?offset=${offset}&filter=${encodeURIComponent(filter)}`, { method: 'GET' });
export const act = (verb, runId) =>
  ask(`/api/${verb}`, { method: 'POST', body: JSON.stringify({ run_id: runId }) });
