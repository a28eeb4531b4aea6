#include "trainer/config/name_pattern.h"

#include <cctype>
#include <utility>

namespace gpuctl::trainer {
namespace {

// Reads what one character stands for, from expression[*at] on, and moves *at behind it.
std::optional<std::bitset<256>> ReadEscaped(const std::string& expression, size_t* at) {
  std::bitset<256> set;
  const auto c = static_cast<unsigned char>(expression[(*at)++]);
  if (c != '\\') {
    set.set(c);
    return set;
  }
  if (*at == expression.size()) return std::nullopt;
  const auto escaped = static_cast<unsigned char>(expression[(*at)++]);
  if (escaped == 'd') {
    for (unsigned char digit = '0'; digit <= '9'; ++digit) set.set(digit);
    return set;
  }
  if (std::isalnum(escaped) != 0) return std::nullopt;
  set.set(escaped);
  return set;
}

// Reads "0-9a]", behind the bracket.
std::optional<std::bitset<256>> ReadSet(const std::string& expression, size_t* at) {
  std::bitset<256> all;
  if (*at < expression.size() && expression[*at] == '^') return std::nullopt;
  while (*at < expression.size() && expression[*at] != ']') {
    if (*at + 2 < expression.size() && expression[*at + 1] == '-' && expression[*at + 2] != ']') {
      const auto low = static_cast<unsigned char>(expression[*at]);
      const auto high = static_cast<unsigned char>(expression[*at + 2]);
      if (low > high || low == '\\' || high == '\\') return std::nullopt;
      for (unsigned c = low; c <= high; ++c) all.set(c);
      *at += 3;
      continue;
    }
    const auto one = ReadEscaped(expression, at);
    if (!one) return std::nullopt;
    all |= *one;
  }
  if (*at == expression.size() || all.none()) return std::nullopt;
  ++*at;
  return all;
}

}  // namespace

std::optional<NamePattern> NamePattern::Read(const std::string& expression) {
  NamePattern pattern;
  std::string rest = expression;
  if (!rest.empty() && rest.front() == '^') {
    pattern.at_start_ = true;
    rest.erase(0, 1);
  }
  if (!rest.empty() && rest.back() == '$' && (rest.size() < 2 || rest[rest.size() - 2] != '\\')) {
    rest.pop_back();
  }
  for (size_t at = 0; at < rest.size();) {
    Atom atom;
    const char c = rest[at];
    if (std::string("()|*+?{}^$]").find(c) != std::string::npos) return std::nullopt;
    if (c == '.') {
      atom.set.set();
      ++at;
    } else {
      if (c == '[') ++at;
      const auto set = c == '[' ? ReadSet(rest, &at) : ReadEscaped(rest, &at);
      if (!set) return std::nullopt;
      atom.set = *set;
    }
    if (at < rest.size() && std::string("*+?").find(rest[at]) != std::string::npos) {
      atom.skips = rest[at] != '+';
      atom.repeats = rest[at] != '?';
      ++at;
    }
    pattern.atoms_.push_back(atom);
  }
  if (pattern.atoms_.empty()) return std::nullopt;
  return pattern;
}

bool NamePattern::MatchesFrom(const std::string& name, size_t at) const {
  // Which atoms may come next; the last place is the end of the pattern.
  std::vector<bool> next(atoms_.size() + 1, false);
  next[0] = true;
  const auto skip = [&](std::vector<bool>* places) {
    for (size_t i = 0; i < atoms_.size(); ++i) {
      if ((*places)[i] && atoms_[i].skips) (*places)[i + 1] = true;
    }
  };
  skip(&next);
  for (; at < name.size(); ++at) {
    std::vector<bool> after(atoms_.size() + 1, false);
    for (size_t i = 0; i < atoms_.size(); ++i) {
      if (!next[i] || !atoms_[i].set[static_cast<unsigned char>(name[at])]) continue;
      after[i + 1] = true;
      if (atoms_[i].repeats) after[i] = true;
    }
    skip(&after);
    next = std::move(after);
  }
  return next[atoms_.size()];
}

bool NamePattern::Matches(const std::string& name) const {
  if (MatchesFrom(name, 0)) return true;
  for (size_t at = 0; !at_start_ && at < name.size(); ++at) {
    if (name[at] == '.' && MatchesFrom(name, at + 1)) return true;
  }
  return false;
}

}  // namespace gpuctl::trainer
