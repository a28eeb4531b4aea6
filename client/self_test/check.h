// One line of `gpuctl doctor --self-test`: what was done, whether it worked, what to do if not.
#ifndef GPUCTL_CLIENT_SELF_TEST_CHECK_H_
#define GPUCTL_CLIENT_SELF_TEST_CHECK_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace gpuctl {

struct TestCheck {
  std::string name;
  bool ok = false;
  std::string found;
  std::string fix;  // used when not ok
  absl::Duration took;
};

// Returns {name, ok, found, took_ms, fix}; `fix` only when not ok.
nlohmann::ordered_json CheckToJson(const TestCheck& check);
// Returns the check in a line of JSON; nothing when there is none.
std::optional<TestCheck> CheckFromJson(absl::string_view line);

// What is thought of something that was tried; a check without its name and time.
struct Judgement {
  bool ok = false;
  std::string found;
  std::string fix;
};

// Passes the checks of one part on as they are made. The time of a check begins with the report
// before it.
class Reporter {
 public:
  Reporter(Clock& clock, std::function<void(const TestCheck&)> pass)
      : clock_(clock), pass_(std::move(pass)), begin_(clock.SinceBoot()) {}
  void Ok(absl::string_view name, absl::string_view found);
  void Fail(absl::string_view name, absl::string_view found, absl::string_view fix);
  void Add(absl::string_view name, const Judgement& judgement);
  Clock& clock() { return clock_; }

 private:
  Clock& clock_;
  const std::function<void(const TestCheck&)> pass_;
  absl::Duration begin_;
};

// Where a self-test does what it does.
struct TestPlace {
  // A new temporary directory, of this self-test alone. Every process of the self-test has its name
  // in an argument or in its environment.
  std::string dir;
  // The random part of its name. It is in the name of everything that must lie elsewhere.
  std::string token() const;
  // A directory in the state directory of the user, for what depends on its file system.
  std::string InStateDir(const std::string& state_dir) const;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SELF_TEST_CHECK_H_
