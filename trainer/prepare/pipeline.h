// Work on a sequence of things by many threads, whose results are taken in the sequence's order.

#ifndef TRAINER_PREPARE_PIPELINE_H_
#define TRAINER_PREPARE_PIPELINE_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "trainer/prepare/ordered_turns.h"

namespace gpuctl::trainer {

template <typename In, typename Out>
struct Pipeline {
  std::function<bool(In*)> next;         // one thread at a time; false at the end
  std::function<Out(const In&)> work;    // many threads at once
  std::function<void(const Out&)> take;  // one thread at a time, in the order of `next`
  std::function<bool()> stop;            // true ends everything; what was begun may be left out

  // Returns when all is taken, or `stop` said so. Rethrows the first exception in the order of
  // `next`. `In` has a size, `bytes`: not much more than kBytesInWork of it is held at one time.
  void Run(int64_t threads) {
    OrderedTurns turns;
    turns.RunThreads(threads, [&] {
      In in;
      size_t number = 0;
      const auto read = [&](size_t* bytes) {
        const bool more = !stop() && next(&in);
        *bytes = more ? in.bytes : 0;
        return more;
      };
      while (turns.Begin(read, &number)) {
        Out out;
        std::exception_ptr failure;
        try {
          out = work(in);
        } catch (...) {
          failure = std::current_exception();
        }
        turns.End(number, in.bytes, failure, [&] {
          if (!stop()) take(out);
        });
      }
    });
  }
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_PREPARE_PIPELINE_H_
