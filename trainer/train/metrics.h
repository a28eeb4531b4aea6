// JSON lines for whoever supervises the run.
//
// The path is usually a FIFO that the supervisor holds open; a plain file works as well. Metrics
// never harm training: no reader, a reader that went away or a full pipe costs lines, not the run.

#ifndef TRAINER_TRAIN_METRICS_H_
#define TRAINER_TRAIN_METRICS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace gpuctl::trainer {

class Metrics {
 public:
  // Largest line, newline included: a write of this size to a pipe is atomic (PIPE_BUF on Linux).
  static constexpr size_t kLargestLine = 4096;

  // "" turns metrics off. Never throws: a path that cannot be opened is tried again at each line.
  explicit Metrics(std::string path);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // One write(2) of one line. Waits up to a second for room in a full pipe, then counts the line as
  // lost. Text that is not UTF-8 is replaced, a line that is too long is cut at its "text".
  void Write(const nlohmann::ordered_json& line);

  int64_t lost() const { return lost_; }

 private:
  bool Open();

  const std::string path_;
  int fd_ = -1;
  int64_t lost_ = 0;
};

// The JSON text of `line` with a newline, at most Metrics::kLargestLine bytes.
std::string MetricLine(nlohmann::ordered_json line);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_METRICS_H_
