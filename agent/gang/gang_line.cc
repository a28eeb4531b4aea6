#include "agent/gang/gang_line.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/bounded_json.h"
#include "common/base/ids.h"
#include "common/files/sha256.h"
#include "common/job/gang_key.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kGreeting = "gpuctl-gang 1 ";
constexpr size_t kNonceDigits = 64;
constexpr size_t kMacDigits = 64;
// The longest line, and the most that waits to be sent. A stranger gets less.
constexpr size_t kMostLineBytes = 64 << 10;
constexpr size_t kMostStrangerBytes = 4 << 10;
constexpr uint64_t kMostRank = 1 << 20;

std::string MacOf(absl::string_view key, absl::string_view purpose, absl::string_view text) {
  return absl::BytesToHexString(HmacSha256(key, absl::StrCat(purpose, "|", text)));
}

std::string Purpose(GangSide sender, uint64_t number) {
  return absl::StrCat(sender == GangSide::kHub ? "hub|" : "member|", number);
}

// The rank that a hello names, which is no more than a word as long as its MAC was not checked.
int RankOf(const nlohmann::json& hello) {
  const auto rank = hello.is_object() ? hello.find("rank") : hello.end();
  const bool named = hello.is_object() && rank != hello.end() && rank->is_number_unsigned();
  return named && rank->get<uint64_t>() <= kMostRank ? rank->get<int>() : -1;
}

// Splits "MAC TEXT" where the MAC is right. Returns nothing else.
std::optional<std::string> Unseal(absl::string_view line, absl::string_view key,
                                  absl::string_view purpose) {
  if (line.size() <= kMacDigits || line[kMacDigits] != ' ') return std::nullopt;
  const absl::string_view text = line.substr(kMacDigits + 1);
  if (!SameSecret(line.substr(0, kMacDigits), MacOf(key, purpose, text))) return std::nullopt;
  return std::string(text);
}

std::string Dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

GangLine::GangLine(UniqueFd fd, GangSide side, Clock& clock)
    : fd_(std::move(fd)), side_(side), clock_(clock), heard_at_(clock.SinceBoot()) {}

void GangLine::Pump() {
  while (open() && !out_.empty()) {
    const ssize_t sent = send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) break;
    if (sent <= 0) return Close();
    out_.erase(0, static_cast<size_t>(sent));
  }
  char buffer[4096];
  const size_t most = session_.empty() ? kMostStrangerBytes : 2 * kMostLineBytes;
  while (open() && in_.size() <= most) {
    const ssize_t got = recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)) break;
    // What came before the end is still read.
    if (got <= 0 && in_.find('\n') == std::string::npos) return Close();
    if (got <= 0) break;
    in_.append(buffer, static_cast<size_t>(got));
  }
  if (out_.size() > kMostLineBytes) Close();
  if (in_.find('\n') == std::string::npos && in_.size() > most) Close();
}

std::optional<std::string> GangLine::TakeLine() {
  const size_t end = in_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = in_.substr(0, end);
  in_.erase(0, end + 1);
  return line;
}

void GangLine::SendChallenge() {
  nonce_ = RandomHex(kNonceDigits / 2);
  absl::StrAppend(&out_, kGreeting, nonce_, "\n");
}

std::optional<std::string> GangLine::TakeChallenge() {
  const std::optional<std::string> line = TakeLine();
  if (!line.has_value()) return std::nullopt;
  absl::string_view nonce = *line;
  if (absl::ConsumePrefix(&nonce, kGreeting) && nonce.size() == kNonceDigits) {
    return std::string(nonce);
  }
  Close();
  return std::nullopt;
}

void GangLine::Derive(absl::string_view key, const std::string& hub_nonce,
                      const std::string& member_nonce) {
  session_ = HmacSha256(key, absl::StrCat("session|", hub_nonce, "|", member_nonce));
}

void GangLine::AnswerChallenge(absl::string_view key, const std::string& hub_nonce,
                               nlohmann::json hello) {
  const std::string nonce = RandomHex(kNonceDigits / 2);
  hello["nonce"] = nonce;
  const std::string text = Dump(hello);
  absl::StrAppend(&out_, MacOf(key, absl::StrCat("hello|", hub_nonce), text), " ", text, "\n");
  Derive(key, hub_nonce, nonce);
}

std::optional<nlohmann::json> GangLine::TakeHello(absl::string_view run_key) {
  const std::optional<std::string> line = TakeLine();
  if (!line.has_value()) return std::nullopt;
  const size_t text_at = std::min(line->size(), kMacDigits + 1);
  nlohmann::json hello =
      ParseBoundedJson(line->substr(text_at), {.bytes = kMostLineBytes, .depth = 4});
  const int rank = RankOf(hello);
  const std::string key = rank > 0 ? GangKeyOfRank(run_key, rank) : "";
  const auto nonce = rank > 0 ? hello.find("nonce") : hello.end();
  const bool whole = rank > 0 && nonce != hello.end() && nonce->is_string();
  if (!whole || !Unseal(*line, key, absl::StrCat("hello|", nonce_)).has_value()) {
    Close();
    return std::nullopt;
  }
  Derive(key, nonce_, nonce->get<std::string>());
  proved_ = true;
  heard_at_ = clock_.SinceBoot();
  return hello;
}

void GangLine::Send(const nlohmann::json& message) {
  if (!open()) return;
  const std::string text = Dump(message);
  absl::StrAppend(&out_, MacOf(session_, Purpose(side_, sent_++), text), " ", text, "\n");
}

std::optional<nlohmann::json> GangLine::Take() {
  if (session_.empty()) return std::nullopt;
  const std::optional<std::string> line = TakeLine();
  if (!line.has_value()) return std::nullopt;
  const GangSide other = side_ == GangSide::kHub ? GangSide::kMember : GangSide::kHub;
  const std::optional<std::string> text = Unseal(*line, session_, Purpose(other, taken_));
  nlohmann::json message;
  if (text.has_value()) {
    message = ParseBoundedJson(*text, {.bytes = kMostLineBytes, .depth = 4});
  }
  if (!message.is_object()) {
    in_.clear();
    Close();
    return std::nullopt;
  }
  ++taken_;
  proved_ = true;
  heard_at_ = clock_.SinceBoot();
  return message;
}

}  // namespace gpuctl
