// How fast a tokenizer.json encodes files:
//
//   bench_tokenizer TOKENIZER_JSON THREADS FILE…
//
// Each file is a document. Every thread encodes all of them, again and again for two seconds, with
// one tokenizer. Prints one JSON line: "mb_per_s" is 10^6 bytes a second of all threads together,
// "mb_per_cpu_s" is 10^6 bytes a second of processor time, which other programs do not change much.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/tokenizer/tokenizer.h"

namespace gpuctl::trainer {
namespace {

double Seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

void Measure(const std::string& path, int threads, const std::vector<std::string>& files) {
  const double begin = Seconds();
  const Tokenizer tokenizer = Tokenizer::Load(path);
  const double loaded = Seconds();
  std::vector<std::string> texts;
  for (const std::string& file : files) texts.push_back(ReadWholeFile(file));
  std::atomic<uint64_t> bytes = 0;
  std::atomic<uint64_t> ids = 0;
  const auto work = [&] {
    const double end = Seconds() + 2;
    while (Seconds() < end) {
      for (const std::string& text : texts) {
        ids += tokenizer.Encode(text, false).size();
        bytes += text.size();
      }
    }
  };
  const std::clock_t used = std::clock();
  const double start = Seconds();
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) running.emplace_back(work);
  for (std::thread& thread : running) thread.join();
  const double seconds = Seconds() - start;
  const double processor = static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC;
  const double megabytes = static_cast<double>(bytes) / 1e6;
  std::printf(
      "{\"name\": \"tokenizer\", \"file\": \"%s\", \"load_s\": %.2f, \"threads\": %d, "
      "\"mb_per_s\": %.1f, \"mb_per_cpu_s\": %.1f, \"bytes_per_id\": %.2f}\n",
      path.c_str(), loaded - begin, threads, megabytes / seconds, megabytes / processor,
      static_cast<double>(bytes) / static_cast<double>(ids));
}

}  // namespace
}  // namespace gpuctl::trainer

int main(int argc, char** argv) {
  if (argc < 4 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: %s TOKENIZER_JSON THREADS FILE...\n", argv[0]);
    return 64;
  }
  try {
    gpuctl::trainer::Measure(argv[1], std::atoi(argv[2]),
                             std::vector<std::string>(argv + 3, argv + argc));
  } catch (const gpuctl::trainer::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
