// The command line: "gpuctl-trainer COMMAND [positional] [--flag value] …".

#ifndef TRAINER_CLI_ARGS_H_
#define TRAINER_CLI_ARGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpuctl::trainer {

class Args {
 public:
  // `flags` are the valid names, each with a value ("--name value" or "--name=value"). Throws
  // Error(kBadConfig): unknown flag (with "did you mean"), missing value, a flag given twice that
  // is not in `repeatable`, more positionals than `positionals`.
  Args(const std::vector<std::string>& words, const std::vector<std::string>& flags,
       const std::vector<std::string>& repeatable, size_t positionals);

  // Returns the value, or `otherwise`.
  std::string Get(const std::string& flag, const std::string& otherwise = "") const;
  std::vector<std::string> All(const std::string& flag) const;
  bool Has(const std::string& flag) const { return values_.count(flag) > 0; }
  // Returns the value. Throws Error(kBadConfig) when it is missing.
  std::string Require(const std::string& flag) const;
  // Returns the number, or `otherwise`. Throws Error(kBadConfig) when it is not a number within
  // [low, high].
  double Number(const std::string& flag, double otherwise, double low, double high) const;
  // Does so with a whole number.
  int64_t Integer(const std::string& flag, int64_t otherwise, double low, double high) const;
  const std::vector<std::string>& positionals() const { return positionals_; }

 private:
  std::map<std::string, std::vector<std::string>> values_;
  std::vector<std::string> positionals_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_CLI_ARGS_H_
