// Runs the real program, for tests of the whole program.

#ifndef TRAINER_TESTS_PROCESS_H_
#define TRAINER_TESTS_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gpuctl::trainer {

struct Ended {
  int code = -1;    // exit code, or -1
  int signal = 0;   // the signal that ended it, or 0
  std::string out;  // standard output
  std::string err;
};

// A running program. Its output goes to files below `directory`.
class Process {
 public:
  // The environment is this process's, without every GPUCTL_ variable, plus `environment`.
  Process(const std::string& directory, const std::vector<std::string>& command,
          const std::map<std::string, std::string>& environment = {});
  ~Process();  // kills it if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Signal(int number) const;
  Ended Wait();

 private:
  pid_t pid_ = -1;
  std::string out_;
  std::string err_;
};

// A FIFO that the reader holds open, as the supervisor of a job does.
class MetricsFifo {
 public:
  explicit MetricsFifo(const std::string& path);
  ~MetricsFifo();
  MetricsFifo(const MetricsFifo&) = delete;
  MetricsFifo& operator=(const MetricsFifo&) = delete;

  const std::string& path() const { return path_; }
  // Reads lines until `wanted` is true for one, and returns that line; blocks until then. Returns a
  // null value when nothing came for a minute.
  nlohmann::json WaitFor(const std::function<bool(const nlohmann::json&)>& wanted);
  // Returns all lines that can be read without waiting.
  std::vector<nlohmann::json> Rest();

 private:
  bool Fill(int timeout_ms);

  std::string path_;
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TESTS_PROCESS_H_
