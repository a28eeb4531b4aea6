// The errors of the trainer.
//
// A failure inside the trainer is an exception of type Error, thrown where the cause is known and
// caught once, in main. Its exit code tells the caller what to do; its text has the form "doing
// what, to what: cause", and `hint` names the next thing to try.

#ifndef TRAINER_BASE_ERROR_H_
#define TRAINER_BASE_ERROR_H_

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace gpuctl::trainer {

enum class ExitCode {
  kDone = 0,
  kBadConfig = 64,  // a flag or a configuration key is wrong; running again cannot help
  kBadData = 65,    // the corpus or a checkpoint cannot be used as it is
  kBug = 70,        // any unplanned error
  kIo = 74,         // an error of the file system
  kTryAgain = 75,   // out of memory, or another passing shortage
  kDiverged = 125,  // the loss or the gradient is not finite: never restart unchanged
};

class Error : public std::runtime_error {
 public:
  // Control characters of the message, which may come from a file, become \xNN, and a message of
  // more than 8 KB keeps its beginning and its end.
  Error(ExitCode code, const std::string& message, std::string hint = "");
  ExitCode code() const { return code_; }
  const std::string& hint() const { return hint_; }

 private:
  ExitCode code_;
  std::string hint_;
};

inline Error ConfigError(const std::string& message, std::string hint = "") {
  return Error(ExitCode::kBadConfig, message, std::move(hint));
}

inline Error DataError(const std::string& message, std::string hint = "") {
  return Error(ExitCode::kBadData, message, std::move(hint));
}

// Returns an error of kind kIo, or kTryAgain where memory was short; `error_number` is an errno
// value.
inline Error IoError(const std::string& doing, const std::string& path, int error_number) {
  return Error(error_number == ENOMEM ? ExitCode::kTryAgain : ExitCode::kIo,
               doing + " " + path + ": " + std::strerror(error_number));
}

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_ERROR_H_
