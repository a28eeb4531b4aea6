// SIGTERM and SIGINT ask the run to save and leave; SIGPIPE is nobody's business.

#ifndef TRAINER_TRAIN_SIGNALS_H_
#define TRAINER_TRAIN_SIGNALS_H_

namespace gpuctl::trainer {

// From now on the two signals only set a flag. Call once, before any thread is started.
void WatchSignals();

// The signal that arrived, or 0. Any thread.
int StopSignal();

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_SIGNALS_H_
