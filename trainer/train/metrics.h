// Writes JSON lines for the supervisor of the run.
//
// The path is usually a FIFO that the supervisor holds open; a plain file works as well. Metrics
// never harm training: a missing reader or a full pipe costs lines, not the run.

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

  // A `path` of "" turns metrics off. Never throws; tries again to open the path at each line.
  explicit Metrics(std::string path);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Writes one line with one write(2). Waits up to a second for room in a full pipe, then counts
  // the line as lost. A part of a line, which a full disk leaves, stays a line of its own. Replaces
  // text that is not UTF-8; cuts the "text" of a line that is too long.
  void Write(const nlohmann::ordered_json& line);

  int64_t lost() const { return lost_; }
  // Why nothing can be written to the path, such as "Permission denied"; "" where it can be, and
  // for a FIFO that nobody reads yet.
  std::string WhyNot() const;

 private:
  bool Open();

  const std::string path_;
  int fd_ = -1;
  int64_t lost_ = 0;
  int error_ = 0;      // errno of the last try to open the path
  bool torn_ = false;  // the file ends inside a line
};

// Returns the JSON text of `line` with a newline, at most Metrics::kLargestLine bytes.
std::string MetricLine(nlohmann::ordered_json line);

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_METRICS_H_
