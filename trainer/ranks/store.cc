#include "trainer/ranks/store.h"

#ifdef TRAINER_HAS_GLOO

#include <c10/util/intrusive_ptr.h>

#include "trainer/ranks/store_held.h"

namespace gpuctl::trainer {

namespace {
constexpr int64_t kAnswer = 300'000;  // milliseconds that a call may wait for a key
}  // namespace

Store::Store(const Ranks& ranks, bool serve, double seconds)
    : held_(std::make_unique<HeldStore>()) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(ranks.port);
  options.isServer = serve;
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  held_->store = c10::make_intrusive<c10d::TCPStore>(ranks.address, options);
  held_->store->setTimeout(std::chrono::milliseconds(kAnswer));
}

Store::~Store() = default;

int64_t Store::Add(const std::string& key, int64_t value) { return held_->store->add(key, value); }

void Store::Set(const std::string& key, const std::string& text) {
  held_->store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
}

bool Store::Has(const std::string& key) { return held_->store->check({key}); }

std::string Store::Get(const std::string& key) {
  const std::vector<uint8_t> bytes = held_->store->get(key);
  return {bytes.begin(), bytes.end()};
}

bool CanJoinProcesses() { return true; }

}  // namespace gpuctl::trainer

#else

#include "trainer/base/error.h"

namespace gpuctl::trainer {

struct HeldStore {};

Store::Store(const Ranks&, bool, double) : held_(std::make_unique<HeldStore>()) {
  throw ConfigError("join the other processes: this LibTorch was built without c10d");
}
Store::~Store() = default;
int64_t Store::Add(const std::string&, int64_t) { return 0; }
void Store::Set(const std::string&, const std::string&) {}
bool Store::Has(const std::string&) { return false; }
std::string Store::Get(const std::string&) { return ""; }
bool CanJoinProcesses() { return false; }

}  // namespace gpuctl::trainer

#endif
