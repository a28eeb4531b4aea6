// The list of all runs: as long as it may be, only the rows in view are in the page.
import { h, setText, setAttribute } from './dom.js';
import { ago, duration, gpuFacts, hasEnded, isBroken, isNumber, number, parametersText, percent, sign, spent, steps,
  whole } from './format.js';

const ROW = 34;
const SPARE = 6;
export const MOST_COMPARED = 8;

export const COLUMNS = [
  { key: 'pick', name: 'Compare', short: '' },
  { key: 'name', name: 'Run' },
  { key: 'state', name: 'State' },
  { key: 'step', name: 'Step', right: true },
  { key: 'loss', name: 'Loss', right: true },
  { key: 'speed', name: 'Tokens/s', right: true },
  { key: 'gpu', name: 'GPU', right: true },
  { key: 'cost', name: 'Cost', right: true },
  { key: 'left', name: 'Left', right: true },
  { key: 'age', name: 'Age', right: true },
  { key: 'node', name: 'On' },
];

export function matches(run, filter) {
  if (!filter) return true;
  return [run.name, run.status, run.node, run.command, ...(run.tags || []), run.run_id]
    .join('\n').toLowerCase().includes(filter);
}

function stateText(run) {
  if (run.queue_text) return `${run.status}: ${run.queue_text}`;
  if (run.status === 'failed' && isNumber(run.exit_code)) return `failed (${run.exit_code})`;
  return run.status;
}

class Row {
  constructor(list) {
    this.run = null;
    this.box = h('input', { type: 'checkbox', tabindex: '-1',
      onclick: (event) => { event.stopPropagation(); list.onpick(this.run.run_id); } });
    this.sign = h('span', { class: 'sign', 'aria-hidden': 'true' });
    this.word = h('span', { class: 'word' });
    this.remark = h('span', { class: 'row-remark' });
    this.bar = h('span', { class: 'bar', 'aria-hidden': 'true' });
    this.name = h('span', { class: 'row-name' });
    this.cells = {};
    const cell = (column) => {
      const element = h('div', { role: 'gridcell', class: `cell c-${column.key}${column.right ? ' right' : ''}` });
      this.cells[column.key] = element;
      return element;
    };
    this.element = h('div', { role: 'row', class: 'row', onclick: () => list.onopen(this.run.run_id) },
      COLUMNS.map(cell));
    this.cells.pick.append(this.box);
    this.cells.name.append(this.name, this.remark);
    this.cells.state.append(this.sign, this.word);
    this.text = h('span');
    this.cells.step.append(this.text, this.bar);
  }

  show(run, at, list) {
    this.run = run;
    this.at = at;
    const { cells } = this;
    setAttribute(this.element, 'id', `run-${run.run_id}`);
    setAttribute(this.element, 'aria-rowindex', at + 2);
    setAttribute(this.element, 'aria-selected', run.run_id === list.opened ? 'true' : 'false');
    this.element.style.transform = `translateY(${at * ROW}px)`;
    this.element.classList.toggle('active', at === list.active);
    this.element.classList.toggle('opened', run.run_id === list.opened);
    this.element.classList.toggle('ended', hasEnded(run));
    this.box.checked = list.picked.includes(run.run_id);
    setAttribute(this.box, 'aria-label', `compare ${run.name}`);
    setText(this.name, run.name);
    setAttribute(this.name, 'title', run.command);
    const remark = run.remark || parametersText(run.parameters);
    setText(this.remark, remark);
    setAttribute(this.remark, 'title', remark || null);
    this.remark.classList.toggle('quiet', !run.remark);
    setText(this.sign, sign(run.status));
    setText(this.word, stateText(run));
    setAttribute(cells.state, 'data-state', run.status);
    setAttribute(cells.state, 'title', run.end_text || run.queue_text);
    setText(this.text, steps(run));
    const part = isNumber(run.step) && run.total_steps > 0 ? Math.min(1, run.step / run.total_steps) : 0;
    this.bar.style.width = `${part * 100}%`;
    setText(cells.loss, number(run.loss));
    cells.loss.classList.toggle('broken', isBroken(run.loss));
    setText(cells.speed, whole(run.tokens_per_s));
    const gpu = gpuFacts(run);
    setText(cells.gpu, gpu.count > 1 && gpu.use !== null ? `${gpu.count}× ${percent(gpu.use)}` : percent(gpu.use));
    setText(cells.cost, spent(run));
    setText(cells.left, isNumber(run.seconds_left) && !hasEnded(run) ? duration(run.seconds_left) : '–');
    setText(cells.age, ago(run.created));
    setText(cells.node, run.node);
  }
}

export class RunList {
  // on: {open(id), pick(id), more(), move(id)}
  constructor(on) {
    this.runs = [];
    this.active = 0;
    this.opened = '';
    this.picked = [];
    this.onopen = on.open;
    this.onpick = on.pick;
    this.onmore = on.more;
    this.rows = [];
    this.space = h('div', { class: 'space', role: 'presentation' });
    this.head = h('div', { role: 'row', class: 'row head', 'aria-rowindex': '1' },
      COLUMNS.map((column) => h('div', {
        role: 'columnheader', class: `cell c-${column.key}${column.right ? ' right' : ''}`,
        'aria-label': column.name, title: column.name, text: column.short ?? column.name })));
    this.element = h('div', {
      role: 'grid', class: 'list', tabindex: '0', 'aria-label': 'Runs', 'aria-multiselectable': 'false',
      'aria-describedby': 'keys', onscroll: () => this.draw(), onfocus: () => this.draw(),
    }, h('div', { role: 'rowgroup' }, this.head), h('div', { role: 'rowgroup', class: 'body' }, this.space));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  setRuns(runs) {
    const id = this.runs[this.active]?.run_id;
    this.runs = runs;
    // The active row stays the same run when others come above it.
    const at = runs.findIndex((run) => run.run_id === id);
    this.active = at >= 0 ? at : Math.max(0, Math.min(this.active, runs.length - 1));
    this.draw();
  }

  get activeRun() { return this.runs[this.active]; }

  activate(runId) {
    const at = this.runs.findIndex((run) => run.run_id === runId);
    if (at >= 0) this.moveTo(at);
  }

  move(by) { this.moveTo(this.active + by); }

  moveTo(at) {
    if (!this.runs.length) return;
    this.active = Math.max(0, Math.min(at, this.runs.length - 1));
    const top = this.active * ROW;
    const room = this.element.clientHeight - ROW; // below the head
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    if (top + ROW > this.element.scrollTop + room) this.element.scrollTop = top + ROW - room;
    this.draw();
  }

  page() { return Math.max(1, Math.floor(this.element.clientHeight / ROW) - 2); }

  draw() {
    const count = this.runs.length;
    this.space.style.height = `${count * ROW}px`;
    setAttribute(this.element, 'aria-rowcount', count + 1);
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW) - SPARE);
    const shown = Math.ceil(this.element.clientHeight / ROW) + 2 * SPARE;
    const last = Math.min(count, first + shown);
    while (this.rows.length < last - first) {
      const row = new Row(this);
      this.rows.push(row);
      this.space.append(row.element);
    }
    while (this.rows.length > last - first) this.rows.pop().element.remove();
    // A row keeps its run while that is in view, so that nothing under the pointer changes.
    const wanted = new Map();
    for (let at = first; at < last; at += 1) wanted.set(this.runs[at].run_id, at);
    const free = [];
    for (const row of this.rows) {
      const at = row.run ? wanted.get(row.run.run_id) : undefined;
      if (at === undefined) free.push(row);
      else {
        row.show(this.runs[at], at, this);
        wanted.delete(row.run.run_id);
      }
    }
    for (const at of wanted.values()) free.pop().show(this.runs[at], at, this);
    // Screen readers read in the order of the elements.
    this.rows.sort((a, b) => a.at - b.at).forEach((row, place) => {
      if (this.space.children[place] !== row.element) this.space.insertBefore(row.element, this.space.children[place] ?? null);
    });
    const active = this.activeRun;
    const inView = active && this.active >= first && this.active < last;
    setAttribute(this.element, 'aria-activedescendant', inView ? `run-${active.run_id}` : null);
    if (last >= count - SPARE) this.onmore();
  }
}
