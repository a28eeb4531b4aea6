// SIGTERM and SIGINT ask the run to save and end; SIGPIPE is ignored.

#ifndef TRAINER_TRAIN_SIGNALS_H_
#define TRAINER_TRAIN_SIGNALS_H_

namespace gpuctl::trainer {

// Blocks the two signals: they stay pending, and no handler runs. A handler could not run safely,
// because oneDNN's matrix product (up to 3.11) keeps its stack pointer in a buffer on the heap, and
// the frame of a handler overwrites what lies below. Call it once, before any thread is started.
void WatchSignals();

// Returns the signal that arrived, or 0. It costs a system call. Safe from any thread.
int StopSignal();

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_SIGNALS_H_
