// The small texts and numbers that the processes of a run share: LibTorch's TCPStore, which rank 0
// serves.

#ifndef TRAINER_RANKS_STORE_H_
#define TRAINER_RANKS_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/ranks/ranks.h"

namespace gpuctl::trainer {

struct HeldStore;  // store_held.h

// One connection. Each call is an exchange with rank 0's process, and waits as long as that one is
// silent; it throws std::exception when the connection is gone. Thread-safe, one call at a time.
class Store {
 public:
  // Connects within `seconds`, and serves when `serve` says so (rank 0, once). Throws
  // std::exception.
  Store(const Ranks& ranks, bool serve, double seconds);
  ~Store();

  // Adds to a number, which is 0 at first, and returns the sum.
  int64_t Add(const std::string& key, int64_t value);
  void Set(const std::string& key, const std::string& text);
  bool Has(const std::string& key);
  // Returns a text that is there.
  std::string Get(const std::string& key);

  // For LibTorch. It lives as long as what uses it, or this.
  const HeldStore& held() const { return *held_; }

 private:
  const std::unique_ptr<HeldStore> held_;
};

// False where LibTorch was built without the parts that processes need.
bool CanJoinProcesses();

}  // namespace gpuctl::trainer

#endif  // TRAINER_RANKS_STORE_H_
