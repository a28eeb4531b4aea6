#include "trainer/jinja/run.h"

namespace gpuctl::trainer::jinja {
namespace {

// A template must not hang. Renderings of conversations take milliseconds.
constexpr int64_t kMostSteps = 5'000'000;
constexpr std::chrono::seconds kLongest(20);
constexpr int64_t kStepsBetweenLooks = 256;  // at the clock

}  // namespace

const Value* Scope::Find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get()) {
    if (const auto found = scope->own_.find(name); found != scope->own_.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

void Run::Step(int line) {
  line_ = line;
  if (++steps_ > kMostSteps) throw TemplateError("the template takes too many steps");
  if (steps_ % kStepsBetweenLooks == 0 && std::chrono::steady_clock::now() - begin_ > kLongest) {
    throw TemplateError("the template takes too long");
  }
}

void Run::Write(const std::string& text) {
  CheckSize(out_.size() + text.size());
  out_ += text;
}

}  // namespace gpuctl::trainer::jinja
