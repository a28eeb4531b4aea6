// The job of the output benchmarks: writes lines to stdout at a given rate or at full speed, and
// reports how fast it could write.
//
//   bench_writer --bytes N [--rate BYTES_PER_S] [--chunk N] [--start FIFO] [--report FILE]
//                [--last TEXT] [--wait]
//
// --start   begins when the FIFO has been opened for writing and closed again
// --rate    each chunk has its own moment, counted from the first: a late one is caught up with
// --report  {"bytes": …, "seconds": …, "slowest_write_s": …}, published by rename
// --last    one more line after the others
// --wait    afterwards, sleeps until it is ended
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int64_t kLineBytes = 100;
constexpr int64_t kNsPerS = 1'000'000'000;

struct Options {
  int64_t bytes = 0;
  int64_t rate = 0;  // 0: full speed
  int64_t chunk = 64'000;
  std::string start, report, last;
  bool wait = false;
};

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * kNsPerS + now.tv_nsec;
}

void WaitUntil(int64_t ns) {
  const timespec when{ns / kNsPerS, ns % kNsPerS};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

bool WriteAll(const char* data, int64_t size) {
  while (size > 0) {
    const ssize_t written = write(STDOUT_FILENO, data, static_cast<size_t>(size));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= written;
  }
  return true;
}

// Returns lines of kLineBytes that look like a log's.
std::string MakeLines(int64_t size) {
  std::string line = "step 123456 of 999999: loss 1.2345, learning rate 0.0003, 12345 tokens/s ";
  line.resize(static_cast<size_t>(kLineBytes - 1), '.');
  line += '\n';
  std::string lines;
  while (static_cast<int64_t>(lines.size()) < size) lines += line;
  lines.resize(static_cast<size_t>(size));
  return lines;
}

bool WaitForStart(const std::string& fifo) {
  if (fifo.empty()) return true;
  const int fd = open(fifo.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char byte = 0;
  while (read(fd, &byte, 1) > 0) {
  }
  close(fd);
  return true;
}

bool Report(const Options& options, int64_t bytes, int64_t elapsed_ns, int64_t slowest_ns) {
  if (options.report.empty()) return true;
  const std::string partial = options.report + ".partial";
  FILE* file = fopen(partial.c_str(), "w");
  if (file == nullptr) return false;
  fprintf(file, "{\"bytes\": %lld, \"seconds\": %.6f, \"slowest_write_s\": %.6f}\n",
          static_cast<long long>(bytes), static_cast<double>(elapsed_ns) / kNsPerS,
          static_cast<double>(slowest_ns) / kNsPerS);
  return fclose(file) == 0 && rename(partial.c_str(), options.report.c_str()) == 0;
}

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--wait") {
      options.wait = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (flag == "--bytes") {
      options.bytes = atoll(value);
    } else if (flag == "--rate") {
      options.rate = atoll(value);
    } else if (flag == "--chunk") {
      options.chunk = atoll(value);
    } else if (flag == "--start") {
      options.start = value;
    } else if (flag == "--report") {
      options.report = value;
    } else if (flag == "--last") {
      options.last = value;
    } else {
      return false;
    }
  }
  return options.bytes >= 0 && options.rate >= 0 && options.chunk > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    fputs("bench_writer: the beginning of writer.cc says how it is used\n", stderr);
    return 2;
  }
  const std::string lines = MakeLines(options.chunk);
  if (!WaitForStart(options.start)) return 1;
  const int64_t begin = NowNs();
  int64_t written = 0, slowest = 0;
  while (written < options.bytes) {
    if (options.rate > 0) {
      WaitUntil(begin + static_cast<int64_t>(static_cast<double>(written) * kNsPerS /
                                             static_cast<double>(options.rate)));
    }
    const int64_t size = std::min(options.chunk, options.bytes - written);
    const int64_t before = NowNs();
    if (!WriteAll(lines.data(), size)) return 1;
    slowest = std::max(slowest, NowNs() - before);
    written += size;
  }
  const int64_t elapsed = NowNs() - begin;
  if (!options.last.empty()) {
    const std::string line = options.last + "\n";
    if (!WriteAll(line.data(), static_cast<int64_t>(line.size()))) return 1;
  }
  if (!Report(options, written, elapsed, slowest)) return 1;
  while (options.wait) pause();
  return 0;
}
