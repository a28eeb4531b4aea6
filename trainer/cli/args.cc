#include "trainer/cli/args.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace gpuctl::trainer {

Args::Args(const std::vector<std::string>& words, const std::vector<std::string>& flags,
           const std::vector<std::string>& repeatable, size_t positionals) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].rfind("--", 0) != 0) {
      positionals_.push_back(words[i]);
      if (positionals_.size() > positionals) {
        throw ConfigError("read the command line: \"" + words[i] + "\" is one word too many");
      }
      continue;
    }
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    if (std::find(flags.begin(), flags.end(), name) == flags.end()) {
      throw ConfigError("read the command line: unknown flag --" + name + DidYouMean(name, flags));
    }
    if (equals == std::string::npos && i + 1 == words.size()) {
      throw ConfigError("read the command line: --" + name + " needs a value");
    }
    std::vector<std::string>& values = values_[name];
    values.push_back(equals == std::string::npos ? words[++i] : words[i].substr(equals + 1));
    const bool many = std::find(repeatable.begin(), repeatable.end(), name) != repeatable.end();
    if (values.size() > 1 && !many) {
      throw ConfigError("read the command line: --" + name + " is given twice");
    }
  }
}

std::string Args::Get(const std::string& flag, const std::string& otherwise) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? otherwise : found->second.front();
}

std::vector<std::string> Args::All(const std::string& flag) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

std::string Args::Require(const std::string& flag) const {
  if (!Has(flag)) throw ConfigError("read the command line: --" + flag + " is missing");
  return Get(flag);
}

double Args::Number(const std::string& flag, double otherwise, double low, double high) const {
  if (!Has(flag)) return otherwise;
  const std::string text = Get(flag);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= low && value <= high)) {
    throw ConfigError(Format("read the command line: --%s %s: must be a number from %g to %g",
                             flag.c_str(), text.c_str(), low, high));
  }
  return value;
}

int64_t Args::Integer(const std::string& flag, int64_t otherwise, double low, double high) const {
  const double value = Number(flag, static_cast<double>(otherwise), low, high);
  if (value != std::floor(value)) {
    throw ConfigError("read the command line: --" + flag + " " + Get(flag) +
                      ": must be a whole number");
  }
  return static_cast<int64_t>(value);
}

}  // namespace gpuctl::trainer
