// Runs a fuzz target without a fuzzer, in every build: over its corpus, then over a few thousand
// mutations of it. Each mutation depends on the seed and its own number only, so one that fails can
// be run again alone:
//
//   x_replay CORPUS_DIR [--mutations N] [--seed S] [--only I]
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

#include "common/files/files.h"
#include "tests/fuzz/json_surgery.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gpuctl {
namespace {

constexpr size_t kMaxInputBytes = 1 << 16;

struct Options {
  std::string corpus;
  uint64_t seed = 20240229;
  int64_t mutations = 4000;
  int64_t only = -1;
};

// The line about the current input that the crash handler prints.
char running[512];

void OnCrash(int signal_number) {
  (void)!write(STDERR_FILENO, running, strlen(running));
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

size_t Below(std::mt19937_64& random, size_t limit) {
  return limit == 0 ? 0 : static_cast<size_t>(random() % limit);
}

void MutateOnce(std::string& input, const std::vector<std::string>& corpus,
                std::mt19937_64& random) {
  static constexpr char kInteresting[] = {'\0', '\1', '\x7f', '\x80', '\xff',
                                          '\n', '"',  '{',    '/',    '.'};
  const size_t at = Below(random, input.size() + 1);
  const size_t length = Below(random, 1 + input.size() - at);
  switch (random() % 8) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << random() % 8));
      break;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(random());
      break;
    case 2:
      input.insert(at, 1 + Below(random, 8), kInteresting[Below(random, sizeof(kInteresting))]);
      break;
    case 3:
      input.erase(at, length);
      break;
    case 4:
      input.resize(at);
      break;
    case 5:
      input.insert(at, input.substr(at, length));
      break;
    case 6: {
      const std::string& other = corpus[Below(random, corpus.size())];
      input.replace(at, length, other.substr(Below(random, other.size() + 1)));
      break;
    }
    default:
      for (size_t i = at; i < input.size() && i < at + 4; ++i) input[i] = '\xff';
  }
  if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
}

std::string Mutation(int64_t number, const Options& options,
                     const std::vector<std::string>& corpus) {
  std::mt19937_64 random(options.seed + static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15);
  std::string input = corpus[Below(random, corpus.size())];
  const size_t steps = 1 + Below(random, 6);
  const bool surgery = random() % 2 == 0;
  for (size_t step = 0; step < steps; ++step) {
    if (!surgery || !ChangeJson(input, random)) MutateOnce(input, corpus, random);
  }
  if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
  return input;
}

int Replay(const Options& options) {
  const auto names = ListDirectory(options.corpus);
  std::vector<std::string> corpus;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    const auto bytes = ReadFileToString(JoinPath(options.corpus, name));
    if (!bytes.ok()) continue;
    snprintf(running, sizeof(running), "while running %s\n", name.c_str());
    if (options.only < 0) Run(*bytes);
    corpus.push_back(*bytes);
  }
  if (corpus.empty()) {
    fprintf(stderr, "%s: no corpus there\n", options.corpus.c_str());
    return 1;
  }
  const int64_t first = options.only < 0 ? 0 : options.only;
  const int64_t end = options.only < 0 ? options.mutations : options.only + 1;
  for (int64_t number = first; number < end; ++number) {
    snprintf(running, sizeof(running), "while running: --seed %llu --only %lld\n",
             static_cast<unsigned long long>(options.seed), static_cast<long long>(number));
    Run(Mutation(number, options, corpus));
  }
  printf("%zu inputs and %lld mutations of them, seed %llu\n", corpus.size(),
         static_cast<long long>(end - first), static_cast<unsigned long long>(options.seed));
  return 0;
}

}  // namespace
}  // namespace gpuctl

int main(int argc, char** argv) {
  gpuctl::Options options;
  if (argc < 2 || argc % 2 != 0) {
    fprintf(stderr, "usage: %s CORPUS_DIR [--mutations N] [--seed S] [--only I]\n", argv[0]);
    return 2;
  }
  options.corpus = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const int64_t value = strtoll(argv[i + 1], nullptr, 10);
    if (flag == "--mutations") options.mutations = value;
    if (flag == "--seed") options.seed = static_cast<uint64_t>(value);
    if (flag == "--only") options.only = value;
  }
  for (const int signal_number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) {
    signal(signal_number, gpuctl::OnCrash);
  }
  signal(SIGPIPE, SIG_IGN);
  return gpuctl::Replay(options);
}
