// Completes a command line: which words may stand at its end. Asks no machine and no market.
#ifndef GPUCTL_CLIENT_VERBS_COMPLETE_WORDS_H_
#define GPUCTL_CLIENT_VERBS_COMPLETE_WORDS_H_

#include <functional>
#include <string>
#include <vector>

#include "client/base/flag_set.h"

namespace gpuctl {

struct Completion {
  std::string word;
  std::string help;  // one line; may be empty
};

struct Completions {
  std::vector<Completion> words;
  bool files = false;  // names of files and directories may stand there, too
};

// What is asked while completing.
struct CompletionSource {
  std::vector<Completion> verbs;
  // Describes a verb of that name.
  std::function<VerbText(const std::string& verb)> describe;
  // Lists the names of runs that begin with `prefix`: those that run, or all, newest first.
  std::function<std::vector<Completion>(bool live_only, const std::string& prefix)> runs;
  // Lists the names of batches; empty: there are none.
  std::function<std::vector<Completion>()> batches = nullptr;
};

// `words` is the command line without "gpuctl"; its last word, which may be empty, is the one to
// complete. Each returned word begins with it.
Completions CompleteWords(const std::vector<std::string>& words, const CompletionSource& source);

// What the usage line of a verb says of its arguments and of some flags.
struct UsageWords {
  struct Slot {
    std::vector<std::string> alternatives;  // "RUN", "FOLDER"; or words to type: "bash", "zsh"
    bool repeated = false;
  };
  std::vector<Slot> arguments;
  std::vector<std::pair<std::string, Slot>> flags;  // "--to": gguf, gguf-lora, mlx
};
UsageWords ReadUsage(const std::string& usage);

// The flags with values that are known here, for a test that there are such flags.
std::vector<std::string> CompletedFlags();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_COMPLETE_WORDS_H_
