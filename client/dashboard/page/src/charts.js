// Drawings of one run or of several, by uPlot, with a text and a table of the newest values for
// those who do not see them.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { h, replace, setText, setAttribute } from './dom.js';
import { duration, isNumber, number, percent, watts, degrees } from './format.js';

const STEPS = 'steps';
const TIME = 'time';
// What is drawn: [title, source, [[column, name, kind of line]…], how a value is written, bounds].
export const CHARTS = [
  { key: 'loss', title: 'Loss', from: STEPS, columns: [[1, 'train'], [2, 'eval']], text: number },
  { key: 'rate', title: 'Learning rate', from: STEPS, columns: [[3, 'learning rate']], text: number },
  { key: 'speed', title: 'Tokens per second', from: STEPS, columns: [[4, 'tokens/s']], text: number, zero: true },
  { key: 'gpu', title: 'GPU', from: TIME, columns: [[1, 'use'], [2, 'memory']], text: percent, range: [0, 100] },
  { key: 'power', title: 'GPU power', from: TIME, columns: [[3, 'power']], text: watts, zero: true },
  { key: 'heat', title: 'GPU temperature', from: TIME, columns: [[4, 'temperature']], text: degrees },
];
// Lines differ by colour and by dashes.
const DASHES = [[], [8, 4], [2, 3], [12, 4, 2, 4], [5, 5], [14, 4], [2, 6], [8, 3, 2, 3, 2, 3]];
// The nearest style that a border in CSS can have.
const borderOf = (dash) => (dash.length === 0 ? 'solid' : dash[0] <= 2 ? 'dotted' : 'dashed');
const HEIGHT = 190;
// How far apart the marks of the x axis may be: whole steps, and times that people count in.
const APART = {
  [STEPS]: Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat(),
  [TIME]: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
    ...Array.from({ length: 10 }, (_, power) => 86400 * 2 ** power)],
};

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// The variable of a line's colour, which light and dark set.
export const variableOf = (index) => `--line-${(index % 8) + 1}`;
const colourOf = (index) => style(variableOf(index));

// Columns that share their x values, from the rows of several runs.
function table(chart, runs) {
  const rows = runs.map((run) => (chart.from === STEPS ? run.series.steps : run.series.gpus));
  const begins = rows.map((list) => (list.length ? list[0][0] : 0));
  const x = (run, row) => (chart.from === STEPS ? row[0] : (row[0] - begins[run]) / 1000);
  const value = (row, column) => (isNumber(row[column]) ? row[column] : null);
  if (runs.length === 1) {
    return [rows[0].map((row) => x(0, row)),
      ...chart.columns.map(([column]) => rows[0].map((row) => value(row, column)))];
  }
  return uPlot.join(rows.map((list, run) => [list.map((row) => x(run, row)),
    ...chart.columns.map(([column]) => list.map((row) => value(row, column)))]));
}

export class Chart {
  constructor(chart) {
    this.chart = chart;
    this.plot = null;
    this.signature = '';
    this.title = h('h3', { text: chart.title });
    this.says = h('p', { class: 'chart-says' });
    this.place = h('div', { class: 'chart-place', role: 'img' });
    this.element = h('figure', { class: 'chart', hidden: true }, h('figcaption', {}, this.title, this.says),
      this.place);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.place);
  }

  resize() {
    const width = Math.floor(this.place.clientWidth);
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  // Draws these runs: [{name, index, series}]. Returns whether there is anything to draw.
  draw(runs) {
    const { chart } = this;
    const used = chart.columns.filter(([column]) => runs.some((run) =>
      (chart.from === STEPS ? run.series.steps : run.series.gpus).some((row) => row[column] !== null)));
    const data = table({ ...chart, columns: used }, runs);
    const points = used.length ? data[0].length : 0;
    setAttribute(this.element, 'hidden', points === 0);
    if (points === 0) {
      this.clear();
      return false;
    }
    this.describe(runs, used);
    const signature = JSON.stringify([runs.map((run) => [run.name, run.index]), used, points < 2]);
    if (this.plot && signature === this.signature) {
      this.plot.setData(data);
    } else {
      this.clear();
      this.signature = signature;
      this.plot = new uPlot(this.options(runs, used, points), data, this.place);
    }
    return true;
  }

  describe(runs, used) {
    const { chart } = this;
    const parts = [];
    for (const run of runs) {
      const rows = chart.from === STEPS ? run.series.steps : run.series.gpus;
      for (const [column, name] of used) {
        const last = rows.findLast((row) => row[column] !== null);
        if (!last) continue;
        const who = runs.length > 1 ? `${run.name}${used.length > 1 ? ` ${name}` : ''}` : name;
        parts.push(`${who} ${chart.text(last[column])}`);
      }
    }
    setText(this.says, runs.length > 1 ? '' : parts.join(' · '));
    const over = chart.from === STEPS ? 'by step' : 'over time';
    setAttribute(this.place, 'aria-label', `${chart.title} ${over}. Newest: ${parts.join(', ')}`);
  }

  options(runs, used, points) {
    const { chart } = this;
    const lines = [];
    for (const run of runs) {
      used.forEach(([, name], at) => {
        const alone = runs.length === 1;
        lines.push({
          label: alone ? name : `${run.name}${used.length > 1 ? ` ${name}` : ''}`,
          stroke: colourOf(alone ? at : run.index),
          width: at === 0 ? 1.75 : 1.25,
          dash: alone ? DASHES[at] : DASHES[(run.index + at * 3) % DASHES.length],
          spanGaps: true,
          // Evaluations are few: each has a point.
          points: { show: points < 2 || (chart.key === 'loss' && name === 'eval'), size: 5 },
          value: (plot, value) => (value === null ? '–' : chart.text(value)),
        });
      });
    }
    const axis = {
      stroke: style('--muted'), font: '11px ui-sans-serif, system-ui, sans-serif',
      grid: { stroke: style('--grid'), width: 1 }, ticks: { stroke: style('--grid'), width: 1, size: 4 },
    };
    const bounds = (plot, low, high) => {
      if (chart.range) return chart.range;
      if (low === null || high === null) return [0, 1];
      if (chart.zero) return [0, high > 0 ? high * 1.08 : 1];
      const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
      return [low - room, high + room];
    };
    return {
      width: Math.max(200, Math.floor(this.place.clientWidth)),
      height: HEIGHT,
      series: [{ label: chart.from === STEPS ? 'step' : 'since the beginning',
        value: (plot, value) => (value === null ? '–' : chart.from === STEPS ? number(value) : duration(value)) },
      ...lines],
      scales: {
        x: { time: false, range: (plot, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) },
        y: { range: bounds },
      },
      axes: [
        { ...axis, size: 26, incrs: APART[chart.from], space: chart.from === TIME ? 64 : 50, values: (plot, values) =>
          values.map((value) => (chart.from === STEPS ? (Number.isInteger(value) ? number(value) : '') : duration(value))) },
        { ...axis, size: 56, values: (plot, values) => values.map((value) => chart.text(value)) },
      ],
      legend: { show: runs.length > 1 || used.length > 1, live: true, markers: { dash: (plot, at) => borderOf(lines[at - 1]?.dash ?? []), fill: null } },
      cursor: { sync: { key: chart.from }, drag: { x: true, y: false }, points: { size: 6 } },
      padding: [8, 18, 0, 0],
    };
  }

  clear() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    this.signature = '';
  }

  destroy() {
    this.observer.disconnect();
    this.clear();
  }
}

export class Charts {
  constructor() {
    this.charts = CHARTS.map((chart) => new Chart(chart));
    this.nothing = h('p', { class: 'muted', text: 'Reading…' });
    this.element = h('div', { class: 'charts' }, this.nothing, this.charts.map((chart) => chart.element));
    this.dark = matchMedia('(prefers-color-scheme: dark)');
    this.repaint = () => {
      for (const chart of this.charts) chart.clear();
      if (this.runs) this.draw(this.runs);
    };
    this.dark.addEventListener('change', this.repaint);
  }

  draw(runs) {
    this.runs = runs;
    const drawn = this.charts.map((chart) => chart.draw(runs)).filter(Boolean).length;
    setText(this.nothing, runs.every((run) => run.series.caughtUp)
      ? 'No numbers yet: the run has written no metrics and printed none that gpuctl knows.'
      : 'Reading…');
    setAttribute(this.nothing, 'hidden', drawn > 0);
  }

  destroy() {
    this.dark.removeEventListener('change', this.repaint);
    for (const chart of this.charts) chart.destroy();
  }
}

// The newest steps as a table, for those who do not see the drawings, and for exact numbers.
export function fillNewestSteps(body, series) {
  const rows = series.steps.slice(-20).reverse();
  replace(body, rows.map((row) => h('tr', {}, h('th', { scope: 'row', text: number(row[0]) }),
    [1, 2, 3, 4].map((column) => h('td', { text: number(row[column]) })))));
}

export const dashOf = (index) => DASHES[index % DASHES.length];
