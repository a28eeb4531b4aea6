// The numbers of the runs that are drawn, as they come: by step, and by time for the GPUs.

export class Series {
  constructor() {
    this.steps = []; // [step, loss, eval loss, learning rate, tokens/s]
    this.gpus = []; // [time in ms, use %, memory %, power W, temperature °C]
    this.log = [];
    this.partial = '';
    this.checkpoints = [];
    this.own = []; // {name, value}: the job's own numbers, the newest first
    this.thinned = false;
    this.caughtUp = false;
    this.version = 0; // grows with each change
    this.logVersion = 0;
  }

  take(news) {
    if (news.from_step === null) {
      this.steps = news.steps;
    } else {
      let keep = this.steps.length;
      while (keep > 0 && this.steps[keep - 1][0] >= news.from_step) keep -= 1;
      this.steps.length = keep;
      this.steps.push(...news.steps);
    }
    this.gpus.length = Math.min(this.gpus.length, news.from_gpu);
    this.gpus.push(...news.gpus);
    if (news.log_is_whole) this.log = news.log;
    else this.log.push(...news.log);
    if (this.log.length > 500) this.log.splice(0, this.log.length - 500);
    if (news.log_is_whole || news.log.length || news.partial_line !== this.partial) {
      this.logVersion += 1;
    }
    this.partial = news.partial_line;
    this.checkpoints = news.checkpoints_told;
    this.own = news.own;
    this.thinned = news.thinned;
    this.caughtUp = news.caught_up;
    this.version += 1;
  }

  // The newest value of a column of the steps; null where none is known.
  newest(column) {
    for (let i = this.steps.length - 1; i >= 0; i -= 1) {
      if (this.steps[i][column] !== null) return { step: this.steps[i][0], value: this.steps[i][column] };
    }
    return null;
  }
}
