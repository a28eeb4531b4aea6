#include "client/verbs/complete_words.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/config/settings.h"
#include "client/spec/run_spec.h"
#include "provisioning/market/gpu_models.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// The verbs for which a run that has ended is no use.
constexpr const char* kLiveVerbs[] = {"attach", "stop", "wait", "exec", "sync", "extend"};

std::vector<std::string> Providers() {
  std::vector<std::string> names = {"local", "ssh"};
  for (const std::string& rental : RentalNames()) names.push_back(rental);
  return names;
}

// Values of flags that the usage lines do not name. A list is split at commas.
const std::map<std::string, std::vector<std::string>>& FlagValues() {
  static const auto* const values = new std::map<std::string, std::vector<std::string>>{
      {"--output", {"table", "wide", "json", "jsonl"}},
      {"--gpu", CanonicalGpuNames()},
      {"--provider", Providers()},
      {"--checkpoint", {"latest", "best"}},
      {"--by", {"run", "gpu", "provider", "day"}},
      {"--for", {"done", "running", "checkpoint"}},
      {"--on-price-rise", {kPriceRules.begin(), kPriceRules.end()}},
      {"--retry-on", {"lost", "failed", "preempted"}},
      {"--status",
       {"running", "queued", "succeeded", "failed", "stopped", "limit", "lost", "launching",
        "pending", "stopping", "retrying"}},
      {"--goal", {"min", "max"}}};
  return *values;
}

// Words of usage lines for which there is nothing to offer.
constexpr const char* kFreeWords[] = {"INSTANCE", "PLATFORM", "PATTERN", "MESSAGE",
                                      "TEXT",     "CMD",      "VALUE",   "TIME"};

bool IsWordToType(absl::string_view word) {
  return !word.empty() && absl::ascii_islower(static_cast<unsigned char>(word[0]));
}

// Collects the words that begin with what is typed.
class Collector {
 public:
  explicit Collector(std::string typed) : typed_(std::move(typed)) {}

  const std::string& typed() const { return typed_; }
  void Add(absl::string_view before, const std::vector<std::string>& words) {
    for (const std::string& word : words) Add({absl::StrCat(before, word), ""});
  }
  void Add(Completion completion) {
    if (!absl::StartsWith(completion.word, typed_) || !seen_.insert(completion.word).second) return;
    found_.words.push_back(std::move(completion));
  }
  void AddFiles() { found_.files = true; }
  Completions Take() { return std::move(found_); }

 private:
  std::string typed_;
  std::set<std::string> seen_;
  Completions found_;
};

class LineCompleter {
 public:
  LineCompleter(const std::vector<std::string>& words, const CompletionSource& source)
      : words_(words), source_(source), out_(words.empty() ? "" : words.back()) {}

  Completions Complete() {
    size_t at = 0;
    const size_t last = words_.empty() ? 0 : words_.size() - 1;
    while (at < last && absl::StartsWith(words_[at], "-")) {
      at += words_[at] == "-o" || words_[at] == "--output" ? 2 : 1;
    }
    if (at == last && at > 0 && absl::StartsWith(words_[at], "-")) return out_.Take();
    if (at > last) {
      out_.Add("", FlagValues().at("--output"));
    } else if (at == last || words_[at] == "help") {
      for (const Completion& verb : source_.verbs) out_.Add(verb);
    } else {
      OfVerb(words_[at], at + 1);
    }
    return out_.Take();
  }

 private:
  void OfVerb(const std::string& verb, size_t begin) {
    const bool known = std::any_of(source_.verbs.begin(), source_.verbs.end(),
                                   [&verb](const auto& other) { return other.word == verb; });
    if (!known) return;
    verb_ = verb;
    text_ = source_.describe(verb);
    usage_ = ReadUsage(text_.usage);
    const size_t last = words_.size() - 1;
    size_t arguments = 0;
    for (size_t i = begin; i < last; ++i) {
      const std::string& word = words_[i];
      if (word == "--") return out_.AddFiles();  // a command, which is not ours
      if (!absl::StartsWith(word, "-") || word == "-") {
        ++arguments;
        given_.insert(word);
        continue;
      }
      const VerbText::Flag* const flag = FindFlag(word);
      if (flag == nullptr || !flag->takes_value) continue;
      if (i + 1 == last) return Value(*flag, "");
      ++i;
    }
    const std::string& typed = out_.typed();
    if (const size_t equals = typed.find('=');
        absl::StartsWith(typed, "--") && equals != typed.npos) {
      const VerbText::Flag* const flag = FindFlag(typed.substr(0, equals));
      if (flag != nullptr) Value(*flag, typed.substr(0, equals + 1));
    } else if (absl::StartsWith(typed, "-")) {
      Flags();
    } else {
      Argument(arguments);
    }
  }

  const VerbText::Flag* FindFlag(const std::string& name) const {
    for (const VerbText::Flag& flag : text_.flags) {
      if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return &flag;
    }
    return nullptr;
  }

  void Flags() {
    for (const VerbText::Flag& flag : text_.flags) {
      if (flag.is_argument()) continue;
      // The long name says more; the short one only where there is no other.
      const std::string& name = flag.names.back();
      out_.Add({name, flag.help.substr(0, flag.help.find('\n'))});
    }
  }

  // Adds values of a flag; `before` is what is typed of the word before the value.
  void Value(const VerbText::Flag& flag, const std::string& before) {
    const std::string& name = flag.names.back();
    if (const auto known = FlagValues().find(name); known != FlagValues().end()) {
      // In a list only the last value is open.
      const size_t comma = out_.typed().rfind(',');
      out_.Add(comma == std::string::npos ? before : out_.typed().substr(0, comma + 1),
               known->second);
      return;
    }
    if ((name == "--on" || name == "--like") && before.empty()) return Runs();
    for (const auto& [of_usage, slot] : usage_.flags) {
      if (of_usage == name) return FillSlot(slot, before);
    }
    out_.AddFiles();
  }

  void Argument(size_t number) {
    if (verb_ == "cp") return Place();
    for (size_t i = 0; i < usage_.arguments.size() && i <= number; ++i) {
      // "RUN... PATTERN..." may have another run where the first pattern could stand.
      if (i == number || usage_.arguments[i].repeated) FillSlot(usage_.arguments[i], "");
    }
  }

  void FillSlot(const UsageWords::Slot& slot, const std::string& before) {
    for (const std::string& alternative : slot.alternatives) {
      if (IsWordToType(alternative)) {
        out_.Add(before, {alternative});
      } else if (alternative == "RUN") {
        Runs();
      } else if (alternative == "BATCH") {
        Batches();
      } else if (alternative == "VERB") {
        for (const Completion& verb : source_.verbs) out_.Add(verb);
      } else if (alternative == "KEY") {
        for (const SettingKey& key : SettingKeys()) out_.Add({key.key, key.about});
      } else if (std::find(std::begin(kFreeWords), std::end(kFreeWords), alternative) ==
                 std::end(kFreeWords)) {
        out_.AddFiles();
      }
    }
  }

  void Runs() {
    const bool live =
        std::find(std::begin(kLiveVerbs), std::end(kLiveVerbs), verb_) != std::end(kLiveVerbs);
    for (const bool live_only : {true, false}) {
      if (!live && live_only) continue;
      bool any = false;
      for (const Completion& run : source_.runs(live_only, out_.typed())) {
        if (given_.count(run.word) != 0 || !absl::StartsWith(run.word, out_.typed())) continue;
        any = true;
        out_.Add(run);
      }
      if (any) return;
    }
  }

  void Batches() {
    if (!source_.batches) return;
    for (const Completion& batch : source_.batches()) {
      if (given_.count(batch.word) == 0) out_.Add(batch);
    }
  }

  // A file here, or RUN:PATH.
  void Place() {
    out_.AddFiles();
    for (const Completion& run : source_.runs(/*live_only=*/false, out_.typed())) {
      out_.Add({absl::StrCat(run.word, ":"), run.help});
    }
  }

  const std::vector<std::string>& words_;
  const CompletionSource& source_;
  Collector out_;
  std::string verb_;
  VerbText text_;
  UsageWords usage_;
  std::set<std::string> given_;
};

}  // namespace

UsageWords ReadUsage(const std::string& usage) {
  UsageWords found;
  const std::vector<std::string> tokens = absl::StrSplit(usage, ' ', absl::SkipEmpty());
  std::string flag;
  for (size_t i = 1; i < tokens.size(); ++i) {
    absl::string_view token = tokens[i];
    UsageWords::Slot slot;
    while (!token.empty() && token[0] == '[') token.remove_prefix(1);
    while (!token.empty() && token.back() == ']') token.remove_suffix(1);
    if (absl::EndsWith(token, "...")) {
      slot.repeated = true;
      token.remove_suffix(3);
    }
    if (token == "--" || token == "FLAGS" || token == "|" || token.empty()) {
      flag.clear();
      if (token == "--") break;
      continue;
    }
    if (absl::StartsWith(token, "-")) {
      flag = std::string(token);
      continue;
    }
    std::string next;
    for (const absl::string_view word : absl::StrSplit(token, '|', absl::SkipEmpty())) {
      if (absl::StartsWith(word, "--")) {
        next = std::string(word);  // "--chat MESSAGE|--prompt TEXT"
      } else {
        slot.alternatives.emplace_back(word);
      }
    }
    if (flag.empty()) {
      found.arguments.push_back(std::move(slot));
    } else {
      found.flags.emplace_back(flag, std::move(slot));
    }
    flag = next;
  }
  return found;
}

std::vector<std::string> CompletedFlags() {
  std::vector<std::string> names;
  for (const auto& [name, values] : FlagValues()) names.push_back(name);
  return names;
}

Completions CompleteWords(const std::vector<std::string>& words, const CompletionSource& source) {
  return LineCompleter(words, source).Complete();
}

}  // namespace gpuctl
