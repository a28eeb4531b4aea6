// The patterns by which PEFT's rank_pattern and alpha_pattern name modules.

#ifndef TRAINER_CONFIG_NAME_PATTERN_H_
#define TRAINER_CONFIG_NAME_PATTERN_H_

#include <bitset>
#include <optional>
#include <string>
#include <vector>

namespace gpuctl::trainer {

// A regular expression without choices and groups: characters, ".", "\." and other escaped ones,
// "\d", [sets], each with or without *, + or ?; "^" first and "$" last. Immutable.
class NamePattern {
 public:
  // Returns nothing for an expression that has other parts.
  static std::optional<NamePattern> Read(const std::string& expression);

  // True for a name that matches as a whole, or whose last parts do, behind a dot. Takes time
  // proportional to both lengths.
  bool Matches(const std::string& name) const;

 private:
  struct Atom {
    std::bitset<256> set;
    bool skips = false;    // may be left out
    bool repeats = false;  // may come again
  };
  bool MatchesFrom(const std::string& name, size_t at) const;

  std::vector<Atom> atoms_;
  bool at_start_ = false;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_CONFIG_NAME_PATTERN_H_
