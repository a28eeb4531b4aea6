// SIGTERM and SIGINT ask the run to save and end; SIGPIPE is ignored.

#ifndef TRAINER_TRAIN_SIGNALS_H_
#define TRAINER_TRAIN_SIGNALS_H_

namespace gpuctl::trainer {

// Makes the two signals only set a flag. Call it once, before any thread is started.
void WatchSignals();

// Returns the signal that arrived, or 0. Safe from any thread.
int StopSignal();

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_SIGNALS_H_
