#include "trainer/train/metrics.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trainer/base/files.h"

namespace gpuctl::trainer {
namespace {

constexpr int kPatienceMs = 1000;

std::string Dump(const nlohmann::ordered_json& line) {
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string MetricLine(nlohmann::ordered_json line) {
  std::string text = Dump(line);
  while (text.size() > Metrics::kLargestLine && line.contains("text")) {
    std::string cut = line["text"].get<std::string>();
    if (cut.empty()) break;
    const size_t excess = text.size() - Metrics::kLargestLine;
    cut.resize(cut.size() - std::min(cut.size(), excess / 6 + 16));  // \u00xx takes six
    line["text"] = cut;
    line["cut"] = true;
    text = Dump(line);
  }
  if (text.size() > Metrics::kLargestLine) {
    text = Dump({{"type", "error"}, {"message", "a metric line was too long"}});
  }
  return text;
}

namespace {

// True for a file whose last line has no end: it was full, or its writer was killed.
bool EndsInsideALine(const std::string& path) {
  if (!IsFile(path)) return false;
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  char last = '\n';
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size > 0 && ::pread(fd, &last, 1, size - 1) != 1) last = '\n';
  ::close(fd);
  return last != '\n';
}

}  // namespace

Metrics::Metrics(std::string path) : path_(std::move(path)) { Open(); }

Metrics::~Metrics() {
  if (fd_ >= 0) ::close(fd_);
}

// Opens with O_NONBLOCK, so that a FIFO without a reader returns ENXIO instead of blocking for
// ever.
bool Metrics::Open() {
  if (fd_ >= 0) return true;
  if (path_.empty()) return false;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644);
  error_ = fd_ >= 0 ? 0 : errno;
  if (fd_ >= 0) torn_ = EndsInsideALine(path_);
  return fd_ >= 0;
}

std::string Metrics::WhyNot() const {
  return error_ == 0 || error_ == ENXIO ? "" : std::strerror(error_);
}

void Metrics::Write(const nlohmann::ordered_json& line) {
  if (path_.empty()) return;
  if (!Open()) {
    ++lost_;
    return;
  }
  const std::string text = (torn_ ? "\n" : "") + MetricLine(line);
  for (;;) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written > 0) torn_ = text[static_cast<size_t>(written) - 1] != '\n';  // a full disk
    if (written == static_cast<ssize_t>(text.size())) return;
    if (written < 0 && errno == EINTR) continue;
    struct pollfd room = {fd_, POLLOUT, 0};
    if (written < 0 && errno == EAGAIN && ::poll(&room, 1, kPatienceMs) > 0 &&
        (room.revents & POLLOUT) != 0) {
      continue;
    }
    ++lost_;
    if (written < 0 && errno == EPIPE) ::close(std::exchange(fd_, -1));  // perhaps a reader returns
    return;
  }
}

}  // namespace gpuctl::trainer
