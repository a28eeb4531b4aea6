#include "client/keys/ask_markets.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/left_thread.h"
#include "client/base/quantity.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr char kPatienceVariable[] = "GPUCTL_MARKET_PATIENCE";

constexpr absl::Duration kBeyondTheSlowest = absl::Seconds(1);
constexpr absl::Duration kForAnUnknown = absl::Seconds(10);

// What the asking threads and the waiting one share. It lives as long as the last of them.
struct Asking {
  Mutex mutex;
  CondVar changed;
  std::vector<std::optional<OffersAnswer>> answers ABSL_GUARDED_BY(mutex);
  std::vector<absl::Duration> took ABSL_GUARDED_BY(mutex);
};

// The machine's time: a market is not faster where a test's clock is.
absl::Duration Now() { return Clock::Real().SinceBoot(); }

}  // namespace

AnswerTimes::AnswerTimes(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  const absl::StatusOr<std::string> text = ReadFileToString(path_, 64 << 10);
  if (!text.ok()) return;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  for (const auto& [market, ms] : json.items()) {
    if (!ms.is_number_integer()) continue;
    usual_.emplace_back(market, absl::Milliseconds(std::clamp<int64_t>(ms, 0, 60'000)));
  }
}

std::optional<absl::Duration> AnswerTimes::Usual(absl::string_view market) const {
  for (const auto& one : usual_) {
    if (one.first == market) return one.second;
  }
  return std::nullopt;
}

void AnswerTimes::Note(absl::string_view market, absl::Duration took) {
  for (auto& one : usual_) {
    if (one.first != market) continue;
    one.second = std::max(took, one.second * 0.8 + took * 0.2);
    return;
  }
  usual_.emplace_back(market, took);
}

void AnswerTimes::Keep() const {
  if (path_.empty()) return;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& one : usual_) json[one.first] = absl::ToInt64Milliseconds(one.second);
  if (!MakeDirectories(DirName(path_)).ok()) return;
  (void)WriteFileAtomic(path_, absl::StrCat(json.dump(), "\n"));
}

std::string AnswerTimesPath(const ClientPaths& paths) {
  return JoinPath(paths.cache_dir, "market-times.json");
}

absl::Duration PatienceFor(std::optional<absl::Duration> usual, absl::Duration slowest_answer) {
  absl::Duration patience = slowest_answer + kBeyondTheSlowest;
  patience = std::max(patience, usual.has_value() ? *usual * 1.5 : kForAnUnknown);
  if (const char* text = std::getenv(kPatienceVariable); text != nullptr) {
    const absl::StatusOr<absl::Duration> least = ParseDuration(text);
    if (least.ok()) patience = std::max(patience, *least);
  }
  return patience;
}

absl::Status CheckMarketPatience() {
  const char* const text = std::getenv(kPatienceVariable);
  if (text == nullptr) return absl::OkStatus();
  const absl::Status read = ParseDuration(text).status();
  if (read.ok()) return read;
  return UsageError(absl::StrCat(kPatienceVariable, ": ", read.message()),
                    "for example GPUCTL_MARKET_PATIENCE=30s");
}

std::vector<OffersAnswer> AskMarketsForOffers(const std::vector<std::shared_ptr<Provider>>& markets,
                                              const Requirements& requirements,
                                              AnswerTimes& times) {
  const auto asking = std::make_shared<Asking>();
  const absl::Duration begin = Now();
  {
    MutexLock lock(asking->mutex);
    asking->answers.resize(markets.size());
    asking->took.resize(markets.size());
  }
  for (size_t i = 0; i < markets.size(); ++i) {
    StartLeavableThread([asking, market = markets[i], requirements, begin, i] {
      OffersAnswer answer = market->ListOffers(requirements);
      MutexLock lock(asking->mutex);
      asking->answers[i] = std::move(answer);
      asking->took[i] = Now() - begin;
      asking->changed.NotifyAll();
    });
  }

  MutexLock lock(asking->mutex);
  while (true) {
    bool all = true, any_offers = false;
    absl::Duration slowest = absl::ZeroDuration();
    for (size_t i = 0; i < markets.size(); ++i) {
      const std::optional<OffersAnswer>& answer = asking->answers[i];
      all = all && answer.has_value();
      if (!answer.has_value() || !answer->ok()) continue;
      any_offers = any_offers || !(*answer)->empty();
      slowest = std::max(slowest, asking->took[i]);
    }
    if (all) break;
    absl::Duration patience = absl::ZeroDuration();
    for (size_t i = 0; i < markets.size(); ++i) {
      if (asking->answers[i].has_value()) continue;
      patience = std::max(patience, PatienceFor(times.Usual(markets[i]->name()), slowest));
    }
    const absl::Duration left = any_offers ? begin + patience - Now() : absl::InfiniteDuration();
    if (left <= absl::ZeroDuration()) break;
    if (any_offers) {
      asking->changed.WaitFor(asking->mutex, left);
    } else {
      asking->changed.Wait(asking->mutex);
    }
  }
  std::vector<OffersAnswer> answers;
  for (size_t i = 0; i < markets.size(); ++i) {
    if (!asking->answers[i].has_value()) {
      answers.push_back(absl::DeadlineExceededError(absl::StrCat(
          "it did not answer in ", HumanDuration(Now() - begin), ", and the others did")));
      continue;
    }
    answers.push_back(*std::move(asking->answers[i]));
    if (answers.back().ok()) times.Note(markets[i]->name(), asking->took[i]);
  }
  return answers;
}

}  // namespace gpuctl
