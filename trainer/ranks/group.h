// The processes of a run, from the side of one of them.

#ifndef TRAINER_RANKS_GROUP_H_
#define TRAINER_RANKS_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/ranks/collectives.h"
#include "trainer/ranks/monitor.h"
#include "trainer/ranks/ranks.h"
#include "trainer/ranks/store.h"

namespace gpuctl::trainer {

class Group {
 public:
  // Waits for all ranks, ten minutes at most: others may still compile their trainer. A rank that
  // is silent for `silence` seconds is gone. `say` gets lines for people. Throws Error(kBadConfig)
  // when it cannot work, Error(kTryAgain) when a rank does not come or `stopped` says so.
  static std::unique_ptr<Group> Join(const Ranks& ranks, double silence,
                                     const std::function<void(const std::string&)>& say,
                                     const std::function<bool()>& stopped);

  int64_t rank() const { return ranks_.rank; }
  int64_t size() const { return ranks_.size; }
  Collectives& collectives() { return *collectives_; }

  // All ranks call these in the same order. They throw Error(kTryAgain) when a rank is gone.
  //
  // Returns the numbers of all ranks; each gives equally many.
  std::vector<std::vector<double>> Share(const std::vector<double>& mine);
  double Sum(double mine);
  double Max(double mine);
  double Min(double mine);
  // Returns what rank 0 gave.
  std::string FromFirst(const std::string& text);
  // Throws Error(kBadConfig) on the ranks whose text is another than rank 0's; `difference` returns
  // words for it.
  void CheckSame(const std::string& text,
                 const std::function<std::string(const std::string& first)>& difference);

  // The run is over on this rank; the last call, on all ranks.
  void Leave();
  // The run failed on this rank: tells the others. The process must then end by EndAtOnce, because
  // operations may wait in it for ever.
  void Fail(const std::string& message);

 private:
  Group(const Ranks& ranks, double silence) : ranks_(ranks), silence_(silence) {}
  void Meet(const std::function<void(const std::string&)>& say,
            const std::function<bool()>& stopped, const std::function<void()>& answered);

  const Ranks ranks_;
  const double silence_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Monitor> monitor_;
  std::unique_ptr<Collectives> collectives_;
};

// True after Fail: see there.
bool MustEndAtOnce();
// Flushes the standard streams and ends the process without destructors.
[[noreturn]] void EndAtOnce(int code);

}  // namespace gpuctl::trainer

#endif  // TRAINER_RANKS_GROUP_H_
