// Which names a part of a template hides.
//
// Jinja decides before it renders where the value of a name comes from. A part (the template, a
// loop's body, a macro, …) that first sets a name has it as a variable of its own, which is
// undefined until then, also for parts within it; so is one that the template was given. A name
// that it reads before, or sets in some branches of an {% if %} only, is that of around it.

#ifndef TRAINER_JINJA_NAMES_H_
#define TRAINER_JINJA_NAMES_H_

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace gpuctl::trainer::jinja {

// Hears of all names in the order of the template. A parser calls it.
class Names {
 public:
  using Hidden = std::shared_ptr<std::vector<std::string>>;

  Names();

  void Load(const std::string& name);
  void Store(const std::string& name);

  // How many times a name was read yet.
  size_t LoadsOf(const std::string& name) const {
    const auto found = loads_.find(name);
    return found == loads_.end() ? 0 : found->second;
  }

  // A part within the current one, which has these names from the beginning. Returns what it
  // hides, which is known after Resolve.
  Hidden BeginPart(const std::vector<std::string>& own);
  void EndPart();
  // The current part has this name from the beginning, too.
  void Own(const std::string& name);

  // An {% if %}. Its branches, after the conditions, are one each.
  void BeginBranches();
  void NextBranch();
  void EndBranches();

  // Computes what all parts hide. `hidden()` is of the template.
  void Resolve();
  const Hidden& hidden() const { return parts_.front()->hidden; }

 private:
  struct Event {
    enum class Kind { kLoad, kStore, kBranches } kind;
    std::string name;
    std::vector<std::vector<Event>> branches;
  };
  // Where the value of a name comes from at the beginning of a part.
  enum class Source { kNowhere, kAround };
  struct Symbols {
    std::map<std::string, Source> sources;
    std::set<std::string> stored;
  };
  struct Part {
    const Part* around = nullptr;
    Symbols symbols;
    std::vector<Event> events;
    Hidden hidden = std::make_shared<std::vector<std::string>>();
  };

  static bool KnownAround(const Part& part, const std::string& name);
  static void Follow(const Part& part, const std::vector<Event>& events, Symbols* symbols);
  static void Join(const std::vector<Symbols>& branches, Symbols* symbols);

  std::map<std::string, size_t> loads_;
  std::vector<std::unique_ptr<Part>> parts_;  // each behind the one around it
  std::vector<Part*> open_;
  std::vector<std::vector<Event>*> lists_;  // the last one gets the next event
};

}  // namespace gpuctl::trainer::jinja

#endif  // TRAINER_JINJA_NAMES_H_
