// The names of Gloo that LibTorch's header of its process group mentions. LibTorch has Gloo inside,
// but few packages bring Gloo's own headers. The trainer makes no objects of these classes and
// calls nothing of them; where the real headers are installed, they are taken.

#ifndef TRAINER_RANKS_GLOO_NAMES_H_
#define TRAINER_RANKS_GLOO_NAMES_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

namespace rendezvous {
class Store {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout{30000};
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

}  // namespace gloo

#endif  // TRAINER_RANKS_GLOO_NAMES_H_
