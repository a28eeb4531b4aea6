// The dashboard: a list of all runs, one run or a comparison beside it, and the keys.
import './style.css';
import { Connection, act, searchRuns } from './connection.js';
import { Comparison, Detail } from './detail.js';
import { h, replace, setAttribute, setText } from './dom.js';
import { hasEnded, setServerTime, usd } from './format.js';
import { MOST_COMPARED, RunList, matches } from './list.js';
import { Series } from './series.js';
import { WaitingRuns } from './waiting.js';

const state = {
  runs: new Map(), // by id: what the list shows
  details: new Map(), // by id: what only its own view shows
  series: new Map(), // by id
  actions: [],
  total: 0,
  totals: { live: 0, usd_per_hour: null },
  waiting: { total: 0, entries: [] }, // runs of batches
  filter: '',
  next: 0, // the first run of the whole list that was not asked for
  matching: null, // of the filter; null: unknown
  asking: false,
  opened: '', // the id of the run beside the list
  comparing: false,
  picked: [], // ids of the runs to compare
};

// --- What is said aloud: changes of state, politely, several at once as one message. ---

const aloud = h('p', { class: 'hidden', role: 'status', 'aria-live': 'polite' });
let toSay = [];
function say(text) {
  toSay.push(text);
  if (toSay.length > 1) return;
  setTimeout(() => {
    setText(aloud, toSay.length > 6 ? `${toSay.length} changes` : toSay.join('. '));
    toSay = [];
  }, 300);
}

// --- The page. ---

const list = new RunList({ open: (id) => open(id), pick: (id) => pick(id), more: () => more() });
const summary = h('p', { class: 'summary' });
const link = h('span', { class: 'link', 'data-link': '' });
const filter = h('input', { type: 'search', placeholder: 'Filter', 'aria-label': 'Filter runs by name, state, machine, tag or command',
  autocomplete: 'off', spellcheck: 'false', oninput: () => setFilter(filter.value) });
const compareButton = h('button', { type: 'button', onclick: () => compare(true) });
const helpButton = h('button', { type: 'button', class: 'quiet', 'aria-label': 'Keys', title: 'Keys (?)', text: '?', onclick: () => help() });
const waitingRuns = new WaitingRuns();
const count = h('p', { class: 'count muted', id: 'keys' });
const empty = h('div', { class: 'empty', hidden: true });
const lost = h('p', { class: 'lost', role: 'alert', hidden: true });
const notices = h('ul', { class: 'notices', 'aria-label': 'Notices', hidden: true });
const side = h('main', { class: 'side', id: 'side' });
const app = document.getElementById('app');
app.append(
  h('header', { class: 'top' }, h('h1', { text: 'gpuctl' }), summary, link, h('div', { class: 'tools' }, filter, compareButton, helpButton)),
  lost, notices,
  h('div', { class: 'panes' }, h('nav', { class: 'pane', 'aria-label': 'Runs' }, list.element, empty, waitingRuns.element, count), side),
  aloud);

let view = null; // Detail or Comparison

function current() {
  return [...state.runs.values()].filter((run) => matches(run, state.filter))
    .sort((a, b) => hasEnded(a) - hasEnded(b) || Date.parse(b.created) - Date.parse(a.created) || (a.run_id < b.run_id ? -1 : 1));
}

let planned = false;
function plan() {
  if (planned) return;
  planned = true;
  // Not requestAnimationFrame alone: a page in the background must stay right, too.
  setTimeout(() => { planned = false; draw(); }, 30);
}

function draw() {
  const runs = current();
  list.opened = state.opened;
  list.picked = state.picked;
  list.setRuns(runs);
  waitingRuns.show(state.waiting);
  const { live, usd_per_hour: price } = state.totals;
  setText(summary, `${live === 0 ? 'nothing is running' : live === 1 ? '1 run lives' : `${live} runs live`}${price === null ? '' : ` · ${usd(price)}/h`}`);
  document.title = live === 0 ? 'gpuctl' : `gpuctl · ${live} live`;
  const all = state.filter ? state.matching : state.total;
  setText(count, runs.length === 0 ? '' : all !== null && all > runs.length ? `${runs.length} of ${all} runs; scroll for more · ? for keys`
    : `${runs.length} ${runs.length === 1 ? 'run' : 'runs'} · ? for keys`);
  const none = runs.length === 0 && state.ready && !state.asking;
  setAttribute(empty, 'hidden', !none);
  setAttribute(list.element, 'hidden', none);
  if (none) {
    replace(empty, state.filter ? h('p', { text: `No run has “${state.filter}” in its name, state, machine, tags or command.` })
      : [h('p', { text: 'There are no runs yet.' }), h('p', { class: 'muted' }, h('code', { text: 'gpuctl launch -- COMMAND' }), ' starts one; it appears here.')]);
  }
  setAttribute(compareButton, 'hidden', state.picked.length === 0);
  setText(compareButton, `Compare ${state.picked.length}`);
  compareButton.disabled = state.picked.length < 2;
  setAttribute(compareButton, 'title', state.picked.length < 2 ? 'Pick another run with c' : 'Draw them together (v)');
  drawSide();
}

function drawSide() {
  const wanted = state.comparing ? 'comparison' : state.opened ? 'detail' : '';
  app.classList.toggle('beside', wanted !== '');
  if (view && view.kind !== wanted) {
    view.destroy();
    view.element.remove();
    view = null;
  }
  if (!wanted) {
    if (!side.firstChild) side.append(h('p', { class: 'hint-side muted', text: 'Enter opens the run, c picks it for a comparison, ? lists the keys.' }));
    return;
  }
  if (!view) {
    view = wanted === 'detail' ? new Detail({ close, stop, pull, pick }) : new Comparison({ close, pick });
    view.kind = wanted;
    replace(side, view.element);
  }
  if (wanted === 'detail') {
    const run = { ...state.runs.get(state.opened), ...state.details.get(state.opened) };
    if (run.run_id && run.name) view.show(run, state.series.get(state.opened), state.picked.includes(state.opened), state.actions);
  } else {
    view.show(state.picked.map((id) => ({ run: { ...state.runs.get(id), ...state.details.get(id) }, series: state.series.get(id) }))
      .filter(({ run }) => run.name));
  }
}

// --- Where the user is; it survives a reload. ---

function remember() {
  const parts = new URLSearchParams();
  if (state.opened) parts.set('run', state.opened);
  if (state.picked.length) parts.set('picked', state.picked.join());
  if (state.comparing) parts.set('compare', '1');
  const wanted = parts.toString() ? `#${parts}` : '';
  if (location.hash !== wanted) history.replaceState(null, '', `${location.pathname}${location.search}${wanted}`);
}

function recall() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const isId = (id) => /^[a-z0-9-]{1,64}$/.test(id);
  state.opened = isId(parts.get('run') || '') ? parts.get('run') : '';
  state.picked = (parts.get('picked') || '').split(',').filter(isId).slice(0, MOST_COMPARED);
  state.comparing = parts.get('compare') === '1' && state.picked.length > 1;
}

function watched() {
  if (state.comparing) return state.picked;
  return state.opened ? [state.opened] : [];
}

function changed() {
  remember();
  const ids = watched();
  for (const id of state.series.keys()) if (!ids.includes(id)) state.series.delete(id);
  connection.watch(ids);
  draw();
}

function open(id) {
  state.opened = id;
  state.comparing = false;
  list.activate(id);
  changed();
  view?.title.focus();
  side.scrollTop = 0;
}

function compare(on) {
  if (on && state.picked.length < 2) {
    say('Pick at least two runs with c');
    return;
  }
  state.comparing = on;
  changed();
  if (on) view?.title.focus();
}

function close() {
  if (state.comparing) state.comparing = false;
  else state.opened = '';
  changed();
  list.element.focus();
}

function pick(id) {
  const name = state.runs.get(id)?.name || 'the run';
  if (state.picked.includes(id)) {
    state.picked = state.picked.filter((one) => one !== id);
    say(`${name} is out of the comparison`);
  } else if (state.picked.length >= MOST_COMPARED) {
    say(`At most ${MOST_COMPARED} runs are compared`);
    return;
  } else {
    state.picked = [...state.picked, id];
    say(`${name} is in the comparison, ${state.picked.length} in all`);
  }
  if (state.picked.length < 2) state.comparing = false;
  changed();
}

// --- The runs that were not sent at first. ---

const SENT = 200; // of the newest
let waiting = 0;
function setFilter(text) {
  state.filter = text.trim().toLowerCase();
  state.next = state.filter ? 0 : Math.min(state.total, SENT);
  state.matching = null;
  clearTimeout(waiting);
  if (state.filter) {
    state.asking = true;
    waiting = setTimeout(() => { state.asking = false; more(); }, 200);
  } else {
    state.asking = false;
  }
  list.moveTo(0);
  draw();
}

async function more() {
  if (state.asking || !state.ready) return;
  const all = state.filter ? state.matching : state.total;
  if (all !== null && (state.next >= all || (!state.filter && list.runs.length >= all))) return;
  state.asking = true;
  const asked = state.filter;
  try {
    const found = await searchRuns(asked, state.next);
    for (const run of found.runs) if (!state.runs.has(run.run_id)) state.runs.set(run.run_id, run);
    state.total = found.total;
    if (asked === state.filter) {
      state.next += found.runs.length;
      state.matching = found.runs.length ? found.matching : Math.min(found.matching, state.next);
    }
  } catch (error) {
    state.matching = state.next;
    notice(error.message);
  }
  state.asking = false;
  draw();
}

// --- Stop and pull. ---

async function ask(verb, run) {
  try {
    await act(verb, run.run_id);
    say(`${verb} ${run.name}: asked`);
  } catch (error) {
    notice(`${verb} ${run.name}: ${error.message}`);
  }
}

const pull = (run) => ask('pull', run);

function dialog(title, body, buttons) {
  const box = h('dialog', { 'aria-labelledby': 'dialog-title' },
    h('form', { method: 'dialog' }, h('h2', { id: 'dialog-title', text: title }), body, h('div', { class: 'buttons' }, buttons)));
  box.addEventListener('close', () => box.remove()); // the browser gives the focus back
  document.body.append(box);
  box.showModal();
  return box;
}

function stop(run) {
  const price = run.lease && run.lease.usd_per_hour;
  const box = dialog(`Stop ${run.name}?`, [
    h('p', { text: 'Its job gets SIGTERM and its time to save a checkpoint, then SIGKILL. gpuctl resume goes on from a checkpoint later.' }),
    price ? h('p', { text: `The machine bills on, ${usd(price)}/h, until its idle limit or gpuctl down ${run.name}.` }) : null,
  ], [
    h('button', { type: 'submit', autofocus: true, text: 'Leave it running' }),
    h('button', { type: 'button', class: 'danger', text: 'Stop the run', onclick: () => { box.close(); ask('stop', run); } }),
  ]);
}

const KEYS = [['↓ ↑ or j k', 'move through the list'], ['Home End, PgUp PgDn', 'further at once'], ['Enter', 'open the run'],
  ['c', 'pick the run for the comparison, or take it out'], ['v', 'compare the picked runs'], ['/', 'filter'],
  ['Esc', 'back'], ['?', 'this help']];

function help() {
  dialog('Keys', [h('table', {}, h('tbody', {}, KEYS.map(([keys, what]) => h('tr', {}, h('th', { scope: 'row' }, h('kbd', { text: keys })), h('td', { text: what }))))),
    h('p', { class: 'muted', text: 'In a drawing: drag to look closer, double-click for all of it.' })],
  [h('button', { type: 'submit', autofocus: true, text: 'Close' })]);
}

function notice(text) {
  notices.append(h('li', {}, h('span', { text }), h('button', { type: 'button', class: 'quiet', 'aria-label': 'Dismiss', text: '✕',
    onclick: (event) => { event.target.closest('li').remove(); setAttribute(notices, 'hidden', !notices.firstChild); } })));
  while (notices.children.length > 4) notices.firstChild.remove();
  setAttribute(notices, 'hidden', false);
  say(text);
}

// --- Events. ---

function take(name, data) {
  if (name === 'snapshot') {
    setServerTime(data.now_ms);
    const sent = new Set(data.runs.map((run) => run.run_id));
    // Of the runs that were asked for, only those that may have changed meanwhile are new.
    for (const run of data.runs) state.runs.set(run.run_id, run);
    for (const [id, run] of state.runs) if (!sent.has(id) && !hasEnded(run)) state.runs.delete(id);
    state.total = data.total;
    state.totals = data.totals;
    state.waiting = data.waiting;
    if (!state.ready) {
      state.ready = true;
      state.next = Math.min(data.total, SENT); // the newest are all here
      if (!state.opened && !state.comparing) list.element.focus({ preventScroll: true });
      for (const text of data.notices) notice(text);
    }
  } else if (name === 'run') {
    const before = state.runs.get(data.run_id);
    if (!before) {
      state.total += 1;
      say(`${data.name} is new: ${data.status}`);
    } else if (before.status !== data.status) {
      say(`${data.name}: ${data.status}`);
    } else if (data.remark && !before.remark) {
      say(`${data.name}: ${data.remark}`);
    }
    state.runs.set(data.run_id, data);
    const detail = state.details.get(data.run_id);
    if (detail) state.details.set(data.run_id, { ...detail, ...data });
  } else if (name === 'gone') {
    if (state.runs.delete(data.run_id)) state.total -= 1;
  } else if (name === 'totals') {
    state.totals = data;
  } else if (name === 'waiting') {
    state.waiting = data;
  } else if (name === 'detail') {
    state.details.set(data.run_id, data);
  } else if (name === 'series') {
    if (!state.series.has(data.run_id)) state.series.set(data.run_id, new Series());
    state.series.get(data.run_id).take(data);
  } else if (name === 'actions') {
    for (const action of data.actions) {
      const before = state.actions.find((one) => one.number === action.number);
      if (before && before.state === 'running' && action.state !== 'running') say(`${action.verb} ${action.name} ${action.state}: ${action.text}`);
    }
    state.actions = data.actions;
  } else if (name === 'notice') {
    notice(data.text);
  }
  if (name !== 'alive') plan();
}

let lostTimer = 0;
const connection = new Connection(take, (now) => {
  clearTimeout(lostTimer);
  setAttribute(link, 'data-link', now);
  setText(link, now === 'live' ? 'live' : 'no connection');
  // A short break, as when the watched runs change, is not worth a word.
  if (now === 'live') {
    setAttribute(lost, 'hidden', true);
    document.body.classList.remove('is-lost');
  } else {
    lostTimer = setTimeout(() => {
      setText(lost, 'gpuctl dashboard does not answer: it was ended, or this computer slept. What is shown is old; the runs go on. Trying again…');
      setAttribute(lost, 'hidden', false);
      document.body.classList.add('is-lost');
    }, 1500);
  }
});

// --- Keys. ---

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  const { target, key } = event;
  const types = target.matches('input[type=search], textarea, select');
  if (key === 'Escape') {
    if (types || state.filter) {
      filter.value = '';
      setFilter('');
      list.element.focus();
    } else if (state.comparing || state.opened) close();
    else return;
    event.preventDefault();
    return;
  }
  if (types) {
    if (key !== 'Enter' && key !== 'ArrowDown') return;
    event.preventDefault();
    list.element.focus();
    return;
  }
  const inList = target === document.body || target === list.element || list.element.contains(target);
  const keys = { j: () => list.move(1), k: () => list.move(-1), c: () => list.activeRun && pick(list.activeRun.run_id),
    v: () => compare(!state.comparing), '/': () => { filter.focus(); filter.select(); }, '?': () => help() };
  const listKeys = { ArrowDown: keys.j, ArrowUp: keys.k, PageDown: () => list.move(list.page()), PageUp: () => list.move(-list.page()),
    Home: () => list.moveTo(0), End: () => list.moveTo(list.runs.length - 1), Enter: () => list.activeRun && open(list.activeRun.run_id) };
  const act_ = keys[key] || (inList ? listKeys[key] : undefined);
  if (!act_) return;
  event.preventDefault();
  if ((key === 'j' || key === 'k') && !inList) list.element.focus();
  act_();
});

window.addEventListener('hashchange', () => { recall(); changed(); });
setInterval(plan, 1000); // ages grow
recall();
changed();
