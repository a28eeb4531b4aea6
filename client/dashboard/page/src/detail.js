// One run: its state, numbers, machine, cost, drawings, checkpoints and output; and several runs in
// one drawing.
import { Charts, dashOf, fillNewestSteps, variableOf } from './charts.js';
import { h, replace, setText, setAttribute } from './dom.js';
import { ago, bytes, clock, degrees, duration, gibibytes, hasEnded, isBroken, isNumber, number, parametersText, percent,
  sign, since, spent, steps, usd, watts, whole, gpuFacts } from './format.js';

const head = (...names) => h('thead', {}, h('tr', {}, names.map((name) => h('th', { scope: 'col', text: name }))));

// A list of names and values that is changed in place.
class Facts {
  constructor(label) {
    this.element = h('dl', { class: 'facts', 'aria-label': label });
    this.values = new Map();
  }

  set(name, value, broken = false) {
    let item = this.values.get(name);
    if (!item) {
      const text = h('dd');
      item = { text, box: h('div', { class: 'fact' }, h('dt', { text: name }), text) };
      this.values.set(name, item);
      this.element.append(item.box);
    }
    setAttribute(item.box, 'hidden', value === null || value === undefined);
    setText(item.text, value ?? '');
    item.text.classList.toggle('broken', broken);
  }
}

export class Detail {
  // on: {close(), stop(run), pull(run), pick(id)}
  constructor(on) {
    this.on = on;
    this.run = null;
    this.series = null;
    this.drawn = -1;
    this.shownLog = -1;
    this.sign = h('span', { class: 'sign', 'aria-hidden': 'true' });
    this.word = h('span');
    this.state = h('span', { class: 'badge' }, this.sign, this.word);
    this.title = h('h2', { tabindex: '-1', id: 'detail-title' });
    this.remark = h('p', { class: 'remark' });
    this.stop = h('button', { type: 'button', class: 'danger', onclick: () => on.stop(this.run), text: 'Stop…' });
    this.pull = h('button', { type: 'button', onclick: () => on.pull(this.run), text: 'Pull newest checkpoint' });
    this.pick = h('button', { type: 'button', onclick: () => on.pick(this.run.run_id), text: 'Compare' });
    this.close = h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close this run',
      title: 'Close (Esc)', onclick: () => on.close(), text: '✕' });
    this.actions = h('ul', { class: 'actions', 'aria-label': 'What was asked for' });
    this.progress = h('progress', { 'aria-label': 'Steps done', max: '1' });
    this.numbers = new Facts('Numbers');
    this.money = new Facts('Cost');
    this.about = new Facts('About');
    this.gpuBody = h('tbody');
    this.gpus = h('section', { 'aria-labelledby': 'gpus-title' }, h('h3', { id: 'gpus-title', text: 'GPUs now' }),
      h('div', { class: 'scroll-x', tabindex: '0', role: 'region', 'aria-label': 'GPUs now' },
        h('table', {}, head('GPU', 'Use', 'Memory', 'Power', 'Temperature'), this.gpuBody)));
    this.moneyBox = h('section', { 'aria-labelledby': 'money-title' }, h('h3', { id: 'money-title', text: 'Cost' }), this.money.element);
    this.charts = new Charts();
    this.thinned = h('p', { class: 'muted', hidden: true, text: 'Very many steps: evenly chosen ones stand for all.' });
    this.newest = h('tbody');
    this.ownBody = h('tbody');
    this.own = h('section', { 'aria-labelledby': 'own-title', class: 'own', hidden: true },
      h('h3', { id: 'own-title', text: "The job's own numbers" }),
      h('div', { class: 'scroll-x', tabindex: '0', role: 'region', 'aria-label': "The job's own numbers" },
        h('table', {}, head('Name', 'Newest value'), this.ownBody)));
    this.checkpointBody = h('tbody');
    this.noCheckpoints = h('p', { class: 'muted', text: 'None that gpuctl knows of.' });
    this.checkpointTable = h('table', { class: 'checkpoints' }, head('Step', 'Made', 'Here'), this.checkpointBody);
    this.log = h('pre', { class: 'log', tabindex: '0', role: 'region', 'aria-label': 'Newest output',
      onscroll: () => { this.follows = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 4; } });
    this.follows = true;
    this.element = h('section', { class: 'detail', 'aria-labelledby': 'detail-title' },
      h('div', { class: 'detail-head' }, h('div', { class: 'title-line' }, this.title, this.state, this.close),
        this.remark, h('div', { class: 'buttons' }, this.pull, this.pick, this.stop), this.actions),
      this.progress, this.numbers.element, this.own, this.gpus, this.moneyBox,
      h('section', { 'aria-label': 'Drawings' }, this.charts.element, this.thinned,
        h('details', {}, h('summary', { text: 'The newest steps as a table' }),
          h('div', { class: 'scroll-x' }, h('table', {}, head('Step', 'Loss', 'Eval loss', 'Learning rate', 'Tokens/s'), this.newest)))),
      h('section', { 'aria-labelledby': 'log-title' }, h('h3', { id: 'log-title', text: 'Newest output' }), this.log),
      h('section', { 'aria-labelledby': 'checkpoints-title' }, h('h3', { id: 'checkpoints-title', text: 'Checkpoints' }),
        this.noCheckpoints, h('div', { class: 'scroll-x' }, this.checkpointTable)),
      h('section', { 'aria-labelledby': 'about-title' }, h('h3', { id: 'about-title', text: 'About this run' }), this.about.element));
  }

  show(run, series, picked, actions) {
    if (!this.run || this.run.run_id !== run.run_id) {
      this.follows = true;
      this.drawn = -1;
      this.shownLog = -1;
    }
    this.run = run;
    this.series = series;
    const ended = hasEnded(run);
    setText(this.title, run.name);
    setText(this.sign, sign(run.status));
    setText(this.word, run.status);
    setAttribute(this.state, 'data-state', run.status);
    const remark = run.error || run.remark || run.queue_text || run.end_text || '';
    setText(this.remark, remark);
    setAttribute(this.remark, 'hidden', !remark);
    this.remark.classList.toggle('warn', Boolean(run.error || run.remark || (ended && run.status !== 'succeeded' && run.status !== 'stopped')));
    setAttribute(this.stop, 'hidden', ended);
    const busy = (verb) => actions.some((action) => action.run_id === run.run_id && action.verb === verb && action.state === 'running');
    this.stop.disabled = busy('stop');
    setText(this.stop, busy('stop') ? 'Stopping…' : 'Stop…');
    this.pull.disabled = busy('pull');
    setText(this.pull, busy('pull') ? 'Pulling…' : 'Pull newest checkpoint');
    setText(this.pick, picked ? 'Leave comparison' : 'Compare');
    setAttribute(this.pick, 'aria-pressed', picked ? 'true' : 'false');
    replaceActions(this.actions, actions.filter((action) => action.run_id === run.run_id).slice(-4));
    if (!series) setAttribute(this.own, 'hidden', true);
    this.showNumbers(run, series, ended);
    this.showMoney(run, ended);
    this.showGpus(run);
    this.showAbout(run);
    this.showCheckpoints(run, series);
    if (series && this.drawn !== series.version) {
      this.drawn = series.version;
      this.charts.draw([{ name: run.name, index: 0, series }]);
      fillNewestSteps(this.newest, series);
      this.showOwn(series);
      setAttribute(this.thinned, 'hidden', !series.thinned);
    }
    if (series && this.shownLog !== series.logVersion) this.showLog(series);
  }

  showNumbers(run, series, ended) {
    const known = isNumber(run.step) && run.total_steps > 0;
    setAttribute(this.progress, 'hidden', !known);
    if (known) {
      this.progress.value = Math.min(1, run.step / run.total_steps);
      setAttribute(this.progress, 'aria-valuetext', `step ${run.step} of ${run.total_steps}`);
    }
    // An ended run's list row has only step and loss; the rest follows from its steps.
    const newest = (value, column) => value ?? series?.newest(column)?.value ?? null;
    const some = (value, text) => (value === null || value === undefined ? null : text(value));
    const loss = newest(run.loss, 1);
    const evaluated = newest(run.eval_loss, 2);
    const gpu = gpuFacts(run);
    this.numbers.set('Step', steps(run));
    this.numbers.set('Loss', some(loss, number), isBroken(loss));
    this.numbers.set('Eval loss', some(evaluated, number), isBroken(evaluated));
    this.numbers.set('Learning rate', some(newest(run.learning_rate, 3), number));
    this.numbers.set('Tokens/s', some(newest(run.tokens_per_s, 4), whole));
    this.numbers.set('Gradient norm', some(run.grad_norm ?? null, number), isBroken(run.grad_norm));
    this.numbers.set('Epoch', some(run.epoch ?? null, (value) => `${number(value)}${run.total_epochs ? ` / ${run.total_epochs}` : ''}`));
    this.numbers.set('Time left', !ended && isNumber(run.seconds_left) ? duration(run.seconds_left) : null);
    this.numbers.set(ended ? 'Running' : 'Ran', null);
    this.numbers.set(ended ? 'Ran' : 'Running', run.started
      ? duration(ended && run.ended ? (Date.parse(run.ended) - Date.parse(run.started)) / 1000 : since(run.started)) : null);
    this.numbers.set('GPU', gpu.use === null ? null : percent(gpu.use));
    this.numbers.set('GPU memory', gpu.used === null ? null : `${gibibytes(gpu.used)}${gpu.total ? ` / ${gibibytes(gpu.total)}` : ''}`);
    this.numbers.set('GPU power', gpu.power === null ? null : watts(gpu.power));
    this.numbers.set('GPU temperature', gpu.temperature === null ? null : degrees(gpu.temperature));
    this.numbers.set('CPU', isNumber(run.cpu_percent) && !ended ? percent(run.cpu_percent) : null);
  }

  showMoney(run, ended) {
    const { lease } = run;
    setAttribute(this.moneyBox, 'hidden', !lease);
    if (!lease) return;
    const open = !['released', 'not_created'].includes(lease.lease_state);
    this.money.set('Spent by this run', spent(run));
    this.money.set('Price', lease.usd_per_hour === null ? 'not known' : `${usd(lease.usd_per_hour)} / hour`);
    this.money.set('Limit', lease.cost_limit_usd ? usd(lease.cost_limit_usd) : null);
    this.money.set('A limit stops it in', !ended && run.stops ? duration(-since(run.stops)) : null);
    this.money.set('Machine', `${lease.provider} ${lease.instance_id || ''}`.trim());
    this.money.set('GPU', lease.gpu ? `${lease.gpu_count > 1 ? `${lease.gpu_count}× ` : ''}${lease.gpu}` : null);
    this.money.set('Bills', !open ? 'no more' : ended ? `on: gpuctl down ${run.name} ends it` : 'now');
  }

  showOwn(series) {
    setAttribute(this.own, 'hidden', series.own.length === 0);
    replace(this.ownBody, series.own.map((one) => h('tr', {}, h('th', { scope: 'row', text: one.name }),
      h('td', { text: number(one.value) }))));
  }

  showGpus(run) {
    const gpus = run.gpus || [];
    setAttribute(this.gpus, 'hidden', gpus.length === 0);
    while (this.gpuBody.rows.length > gpus.length) this.gpuBody.lastChild.remove();
    gpus.forEach((gpu, at) => {
      const row = this.gpuBody.rows[at] || this.gpuBody.appendChild(
        h('tr', {}, h('th', { scope: 'row' }), h('td'), h('td'), h('td'), h('td')));
      [`${at}: ${gpu.name || 'GPU'}`, percent(gpu.utilization_percent),
        `${gibibytes(gpu.memory_used_bytes)} / ${gibibytes(gpu.memory_total_bytes)}`,
        watts(gpu.power_w), degrees(gpu.temperature_c)].forEach((text, cell) => setText(row.cells[cell], text));
    });
  }

  showAbout(run) {
    this.about.set('Command', run.command);
    this.about.set('Parameters', parametersText(run.parameters) || null);
    this.about.set('On', `${run.node}${run.provider && run.provider !== run.node ? ` (${run.provider})` : ''}`);
    this.about.set('Launched', clock(run.created));
    this.about.set('Last heard', run.last_heard ? `${ago(run.last_heard)} ago` : 'never');
    this.about.set('Work directory', run.workdir || null);
    this.about.set('Tags', run.tags && run.tags.length ? run.tags.join(', ') : null);
    this.about.set('Note', run.note || null);
    this.about.set('Run id', run.run_id);
  }

  showCheckpoints(run, series) {
    const rows = new Map();
    for (const told of series ? series.checkpoints : []) {
      rows.set(`step ${told.step}`, { step: told.step, made: told.time_ms, here: null });
    }
    for (const there of run.checkpoints_there || []) {
      const key = there.step === null ? there.here || `there ${there.path}` : `step ${there.step}`;
      const row = rows.get(key) || { step: there.step, made: null, here: null };
      row.made = row.made || Date.parse(there.made);
      row.there = `${there.path.replace(/^(work|ckpt)\//, '')} (${bytes(there.bytes)})`;
      rows.set(key, row);
    }
    for (const here of run.checkpoints_here || []) {
      const key = here.step === null ? here.path : `step ${here.step}`;
      const row = rows.get(key) || { step: here.step, made: null };
      row.here = here.is_there ? `${here.path} (${bytes(here.bytes)})` : `was at ${here.path}, and is gone`;
      rows.set(key, row);
    }
    const sorted = [...rows.values()].sort((a, b) => (b.step ?? -1) - (a.step ?? -1)).slice(0, 50);
    const signature = JSON.stringify(sorted);
    if (signature === this.checkpointSignature) return;
    this.checkpointSignature = signature;
    setAttribute(this.noCheckpoints, 'hidden', sorted.length > 0);
    setAttribute(this.checkpointTable, 'hidden', sorted.length === 0);
    replace(this.checkpointBody, sorted.map((row) => h('tr', {}, h('th', { scope: 'row', text: row.step === null ? '–' : whole(row.step) }),
      h('td', { text: row.made ? clock(row.made) : '–' }), h('td', { class: 'path', text: row.here || `not pulled${row.there ? `: ${row.there}` : ''}` }))));
  }

  showLog(series) {
    this.shownLog = series.logVersion;
    const lines = series.partial ? [...series.log, series.partial] : series.log;
    const selected = getSelection();
    // Text that is being selected stays as it is.
    if (selected && !selected.isCollapsed && this.log.contains(selected.anchorNode)) {
      this.shownLog = -1;
      return;
    }
    setText(this.log, lines.length ? lines.join('\n') : series.caughtUp ? 'Nothing was printed yet.' : 'Reading…');
    if (this.follows) this.log.scrollTop = this.log.scrollHeight;
  }

  destroy() { this.charts.destroy(); }
}

function replaceActions(list, actions) {
  const signature = JSON.stringify(actions);
  if (list.signature === signature) return;
  list.signature = signature;
  const words = { running: 'at work', done: 'done', failed: 'failed' };
  replace(list, actions.map((action) => h('li', { 'data-action': action.state },
    h('strong', { text: `${action.verb} ${words[action.state]}` }), action.text ? `: ${action.text}` : '…',
    action.hint ? h('span', { class: 'hint', text: ` HINT: ${action.hint}` }) : null)));
}

export class Comparison {
  constructor(on) {
    this.on = on;
    this.title = h('h2', { tabindex: '-1', id: 'compare-title', text: 'Comparison' });
    this.body = h('tbody');
    this.charts = new Charts();
    this.drawn = '';
    this.element = h('section', { class: 'detail', 'aria-labelledby': 'compare-title' },
      h('div', { class: 'detail-head' }, h('div', { class: 'title-line' }, this.title,
        h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close the comparison', title: 'Close (Esc)', onclick: () => on.close(), text: '✕' }))),
      h('div', { class: 'scroll-x', tabindex: '0', role: 'region', 'aria-label': 'Newest values' },
        h('table', { class: 'compared' }, h('caption', { class: 'hidden', text: 'Newest values' }),
          head('Line', 'Run', 'Parameters', 'State', 'Step', 'Loss', 'Eval loss', 'Learning rate', 'Tokens/s', 'GPU', 'Cost', ''), this.body)),
      this.charts.element);
  }

  // runs: [{run, series}], in the order in which they were picked
  show(runs) {
    setText(this.title, `Comparison of ${runs.length} runs`);
    const signature = runs.map(({ run }) => run.run_id).join();
    if (signature !== this.rows) {
      this.rows = signature;
      replace(this.body, runs.map(({ run }, index) => h('tr', { 'data-run': run.run_id },
        h('td', {}, lineSample(index)), h('th', { scope: 'row' }), Array.from({ length: 9 }, () => h('td')),
        h('td', {}, h('button', { type: 'button', class: 'quiet', 'aria-label': `take ${run.name} out`, onclick: () => this.on.pick(run.run_id), text: '✕' })))));
    }
    runs.forEach(({ run, series }, index) => {
      const newest = (value, column) => value ?? series?.newest(column)?.value ?? null;
      const cells = this.body.rows[index].cells;
      [run.name, parametersText(run.parameters), `${sign(run.status)} ${run.status}`, steps(run), number(newest(run.loss, 1)), number(newest(run.eval_loss, 2)),
        number(newest(run.learning_rate, 3)), whole(newest(run.tokens_per_s, 4)), percent(gpuFacts(run).use), spent(run)]
        .forEach((text, cell) => setText(cells[cell + 1], text));
    });
    const ready = runs.filter(({ series }) => series);
    const version = signature + ready.map(({ series }) => series.version).join();
    if (version === this.drawn || ready.length === 0) return;
    this.drawn = version;
    this.charts.draw(ready.map(({ run, series }) => ({ name: run.name, series, index: runs.findIndex((one) => one.run === run) })));
  }

  destroy() { this.charts.destroy(); }
}

// The line as the drawings have it.
function lineSample(index) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 36 8');
  svg.setAttribute('class', 'sample');
  svg.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(space, 'line');
  for (const [name, value] of Object.entries({ x1: 0, y1: 4, x2: 36, y2: 4, 'stroke-width': 2.5,
    'stroke-dasharray': dashOf(index).join(' ') || 'none' })) line.setAttribute(name, value);
  line.style.stroke = `var(${variableOf(index)})`;
  svg.append(line);
  return svg;
}
