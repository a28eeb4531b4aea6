// The state of a rendering: variables, output, limits.

#ifndef TRAINER_JINJA_RUN_H_
#define TRAINER_JINJA_RUN_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/jinja_values/value.h"

namespace gpuctl::trainer::jinja {

// The variables of a template, a loop's body, a macro. An inner scope sees the outer ones, and sets
// only its own.
class Scope {
 public:
  explicit Scope(std::shared_ptr<const Scope> outer = nullptr) : outer_(std::move(outer)) {}

  void Set(const std::string& name, Value value) { own_[name] = std::move(value); }
  // Returns null when no scope has it.
  const Value* Find(const std::string& name) const;

 private:
  std::map<std::string, Value> own_;
  std::shared_ptr<const Scope> outer_;
};
using ScopePtr = std::shared_ptr<Scope>;

// One thread uses it.
class Run {
 public:
  explicit Run(std::time_t now) : now_(now) {}

  // Counts one step at that line. Throws when there were too many, or the rendering takes long.
  void Step(int line);
  // A step within others lasts as long as this. Throws when they are nested too deeply.
  class Nested {
   public:
    Nested(Run& run, int line) : run_(run) {
      run.Step(line);
      if (run_.nested_ >= kMostNested) throw TemplateError("the template is nested too deeply");
      ++run_.nested_;
    }
    ~Nested() { --run_.nested_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Run& run_;
  };
  int line() const { return line_; }
  std::time_t now() const { return now_; }

  void Write(const std::string& text);

  // Renders into a text of its own: a macro's, a block's that is set.
  template <typename Body>
  std::string Capture(const Body& body) {
    std::string outer = std::move(out_);
    out_.clear();
    ++depth_;
    body();
    --depth_;
    std::string text = std::move(out_);
    out_ = std::move(outer);
    return text;
  }

  // Renders a generation block: its place in the text is kept.
  template <typename Body>
  void Generation(const Body& body) {
    if (depth_ > 0) throw TemplateError("a generation block within a macro or a block");
    const size_t begin = out_.size();
    body();
    generations_.emplace_back(begin, out_.size());
  }

  std::string TakeText() { return std::move(out_); }
  std::vector<std::pair<size_t, size_t>> TakeGenerations() { return std::move(generations_); }

 private:
  // Keeps the stack below about 2 MiB.
  static constexpr int kMostNested = 1000;

  const std::time_t now_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int64_t steps_ = 0;
  int line_ = 1;
  int depth_ = 0;  // of texts of their own
  int nested_ = 0;
  std::string out_;
  std::vector<std::pair<size_t, size_t>> generations_;
};

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_RUN_H_
