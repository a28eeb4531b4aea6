// The runs of batches that wait for their start: name, parameters, and why.
import { h, replace, setAttribute, setText } from './dom.js';
import { parametersText } from './format.js';

export class WaitingRuns {
  constructor() {
    this.shown = '';
    this.summary = h('summary');
    this.body = h('tbody');
    this.more = h('p', { class: 'muted' });
    this.element = h('details', { class: 'waiting', hidden: true }, this.summary,
      h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Runs that wait' },
        h('table', {}, h('thead', {}, h('tr', {}, ['Run', 'Parameters', 'Why it waits']
          .map((name) => h('th', { scope: 'col', text: name })))), this.body), this.more));
  }

  // waiting: {total, entries: [{name, batch, parameters, why}]}
  show(waiting) {
    setAttribute(this.element, 'hidden', waiting.total === 0);
    setText(this.summary, waiting.total === 1 ? '1 run waits for its start' : `${waiting.total} runs wait for their start`);
    const shown = JSON.stringify(waiting.entries);
    if (shown === this.shown) return;
    this.shown = shown;
    replace(this.body, waiting.entries.map((entry) => h('tr', {}, h('th', { scope: 'row', text: entry.name }),
      h('td', { text: parametersText(entry.parameters) || '–' }), h('td', { text: entry.why || '–' }))));
    const left = waiting.total - waiting.entries.length;
    setText(this.more, left > 0 ? `and ${left} more; gpuctl queue BATCH lists all` : '');
  }
}
