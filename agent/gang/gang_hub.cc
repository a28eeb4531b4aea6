#include "agent/gang/gang_hub.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr size_t kMostStrangers = 64;
constexpr size_t kMostLinesOfPeer = 64;

}  // namespace

GangHub::GangHub(gpuctl::v1::Gang gang, std::string key, GangTimes times, Clock& clock)
    : gang_(std::move(gang)), key_(std::move(key)), times_(times), clock_(clock) {}

absl::Status GangHub::Open() {
  ASSIGN_OR_RETURN(listener_, ListenEverywhere());
  for (const std::string& address : OwnAddresses()) place_.add_addresses(address);
  place_.set_port(listener_.port);
  return absl::OkStatus();
}

void GangHub::BeginEpoch(int64_t epoch) {
  epoch_ = epoch;
  joining_ = true;
  own_steps_.reset();
  own_end_.reset();
  cause_.reset();
  peers_.clear();
  for (int rank = 1; rank < gang_.size(); ++rank) peers_[rank];
}

void GangHub::SetReady(std::vector<int64_t> steps) { own_steps_ = std::move(steps); }

void GangHub::AddTo(std::vector<pollfd>& polled) const {
  const auto add = [&polled](const GangLine& line) {
    if (!line.open()) return;
    const int events = line.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({line.fd(), static_cast<short>(events), 0});
  };
  polled.push_back({listener_.fd.get(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) add(*stranger.line);
  for (const auto& [rank, peer] : peers_) {
    for (const Line& line : peer.lines) add(*line.line);
  }
}

void GangHub::Step() {
  Accept();
  StepStrangers();
  for (auto& [rank, peer] : peers_) StepPeer(rank, peer);
  if (clock_.SinceBoot() < next_beat_) return;
  next_beat_ = clock_.SinceBoot() + times_.beat;
  for (auto& [rank, peer] : peers_) {
    for (Line& line : peer.lines) {
      line.line->Send({{"t", "beat"}});
      line.line->Pump();
    }
  }
}

void GangHub::Accept() {
  for (;;) {
    UniqueFd fd(accept(listener_.fd.get(), nullptr, nullptr));
    if (!fd.valid()) return;
    if (fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) {
      continue;
    }
    // The oldest stranger gives way: members need an instant.
    if (strangers_.size() >= kMostStrangers) strangers_.erase(strangers_.begin());
    Stranger stranger{std::make_unique<GangLine>(std::move(fd), GangSide::kHub, clock_),
                      clock_.SinceBoot()};
    stranger.line->SendChallenge();
    strangers_.push_back(std::move(stranger));
  }
}

void GangHub::StepStrangers() {
  for (Stranger& stranger : strangers_) {
    stranger.line->Pump();
    const std::optional<nlohmann::json> hello = stranger.line->TakeHello(key_);
    if (hello.has_value()) {
      Welcome(stranger, *hello);
    } else if (clock_.SinceBoot() - stranger.since >= times_.stranger) {
      stranger.line->Close();
    }
  }
  std::erase_if(strangers_, [](const Stranger& stranger) {
    return stranger.line == nullptr || !stranger.line->open();
  });
}

void GangHub::Welcome(Stranger& stranger, const nlohmann::json& hello) {
  Line line;
  int rank = 0;
  int64_t epoch = 0;
  std::string id, local;
  try {
    id = hello.at("id").get<std::string>();
    rank = hello.at("rank").get<int>();
    epoch = hello.at("epoch").get<int64_t>();
    line.address = hello.at("address").get<std::string>();
    local = hello.at("local").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return stranger.line->Close();
  }
  const auto peer = peers_.find(rank);
  const bool ours = std::find(place_.addresses().begin(), place_.addresses().end(), line.address) !=
                    place_.addresses().end();
  if (!joining_ || id != gang_.id() || epoch != epoch_ || peer == peers_.end() || !ours ||
      peer->second.lines.size() >= kMostLinesOfPeer) {
    return stranger.line->Close();
  }
  line.translated = local != PeerAddress(stranger.line->fd()) ||
                    line.address != LocalAddress(stranger.line->fd());
  line.line = std::move(stranger.line);
  line.line->Send({{"t", "welcome"}});
  line.line->Pump();
  peer->second.lines.push_back(std::move(line));
}

void GangHub::StepPeer(int rank, Peer& peer) {
  const absl::Duration now = clock_.SinceBoot();
  bool silent = false;
  for (Line& line : peer.lines) {
    line.line->Pump();
    while (const std::optional<nlohmann::json> message = line.line->Take()) {
      Obey(rank, peer, line, *message);
    }
    if (now - line.line->heard_at() < times_.silence) continue;
    silent = silent || line.line->open();
    line.line->Close();
  }
  std::erase_if(peer.lines, [](const Line& line) { return !line.line->open(); });
  // Before all begin, a member may come again.
  if (joining_ || !peer.lines.empty() || peer.gone) return;
  peer.gone = true;
  if (peer.end.has_value()) return;
  GangEnd end;
  end.lost = true;
  end.code = 1;
  const std::string what =
      silent ? absl::StrCat(" was silent for ", absl::ToInt64Seconds(times_.silence), " s")
             : " was lost: its connection ended";
  if (!cause_.has_value()) {
    SetCause(rank, end.code, absl::StrCat(kGangPrefix, GangNodeName(gang_, rank), what));
  }
  peer.end = end;
}

void GangHub::Obey(int rank, Peer& peer, Line& line, const nlohmann::json& message) {
  try {
    const std::string type = message.at("t").get<std::string>();
    if (type == "joined") {
      line.joined = true;
      peer.steps = message.at("steps").get<std::vector<int64_t>>();
    } else if (type == "stopping") {
      GangEnd end;
      end.reason = message.at("reason").get<std::string>();
      if (!cause_.has_value()) SetCause(rank, 0, ReasonForOthers(gang_, rank, end));
    } else if (type == "end" && !peer.end.has_value()) {
      if (!IsExitCode(message.at("code"))) return line.line->Close();
      GangEnd end;
      end.code = message.at("code").get<int>();
      end.reason = message.at("reason").get<std::string>();
      end.lost = message.at("lost").get<bool>();
      end.retry = message.at("retry").get<bool>();
      end.delay_ms = BoundedPauseMs(message.at("delay_ms").get<int64_t>());
      peer.end = end;
      if (joining_ && !cause_.has_value() && end.code == 0 && end.reason.empty() && !end.lost) {
        SetCause(
            rank, 1,
            absl::StrCat(kGangPrefix, GangNodeName(gang_, rank), " ended before all could begin"));
      }
      TakeEnd(rank, end);
    }
  } catch (const nlohmann::json::exception&) {
    line.line->Close();
  }
}

void GangHub::TakeEnd(int rank, const GangEnd& end) {
  const bool success = end.code == 0 && end.reason.empty() && !end.lost;
  if (!success && !cause_.has_value()) {
    SetCause(rank, end.code, ReasonForOthers(gang_, rank, end));
  }
  if (!cause_.has_value() || cause_->rank != rank) return;
  cause_->code = end.code;
  cause_->retry = end.retry;
  cause_->delay_ms = end.delay_ms;
}

void GangHub::SetCause(int rank, int code, const std::string& reason) {
  cause_.emplace();
  cause_->rank = rank;
  cause_->code = code;
  cause_->reason = reason;
  for (auto& [other, peer] : peers_) {
    if (other == rank || peer.end.has_value()) continue;
    for (Line& line : peer.lines) {
      line.line->Send({{"t", "stop"}, {"reason", reason}});
      line.line->Pump();
    }
  }
}

void GangHub::OwnIsStopping(const std::string& reason) {
  GangEnd end;
  end.reason = reason;
  if (!cause_.has_value()) SetCause(0, 0, ReasonForOthers(gang_, 0, end));
}

void GangHub::OwnEnded(const GangEnd& end) {
  if (own_end_.has_value()) return;
  own_end_ = end;
  TakeEnd(0, end);
}

void GangHub::Fail(const std::string& reason) {
  if (!cause_.has_value()) SetCause(-1, 1, reason);
}

void GangHub::GiveUpOthers() {
  for (auto& [rank, peer] : peers_) {
    if (peer.end.has_value()) continue;
    peer.end.emplace();
    peer.end->lost = true;
    peer.end->code = 1;
    peer.gone = true;
  }
}

bool GangHub::IsLost(int rank) const {
  const auto peer = peers_.find(rank);
  return peer != peers_.end() && peer->second.gone && peer->second.end.has_value() &&
         peer->second.end->lost;
}

bool GangHub::AllOver() const {
  return own_end_.has_value() && std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
           return entry.second.end.has_value() || entry.second.gone;
         });
}

bool GangHub::HasJoined(const Peer& peer) const {
  return std::any_of(peer.lines.begin(), peer.lines.end(),
                     [](const Line& line) { return line.joined; });
}

std::string GangHub::CommonAddress() const {
  for (const std::string& address : place_.addresses()) {
    const bool all = std::all_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
      return std::any_of(entry.second.lines.begin(), entry.second.lines.end(),
                         [&](const Line& line) {
                           return line.joined && !line.translated && line.address == address;
                         });
    });
    if (all) return address;
  }
  return "";
}

// What torch sends is not encrypted, so a private network is worth a moment.
bool GangHub::PrivateComes() const {
  return std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return std::any_of(entry.second.lines.begin(), entry.second.lines.end(), [](const Line& line) {
      return !line.joined && !line.translated && line.line->open() &&
             IsPrivateAddress(line.address);
    });
  });
}

// The newest step that every member has which has any: often only rank 0 writes checkpoints.
int64_t GangHub::CommonStep() const {
  std::vector<const std::vector<int64_t>*> lists;
  if (own_steps_.has_value() && !own_steps_->empty()) lists.push_back(&*own_steps_);
  for (const auto& [rank, peer] : peers_) {
    if (peer.steps.has_value() && !peer.steps->empty()) lists.push_back(&*peer.steps);
  }
  if (lists.empty()) return -1;
  int64_t newest = -1;
  for (const int64_t step : *lists.front()) {
    const bool everywhere = std::all_of(lists.begin(), lists.end(), [step](const auto* list) {
      return std::find(list->begin(), list->end(), step) != list->end();
    });
    if (everywhere) newest = std::max(newest, step);
  }
  return newest;
}

std::optional<GangGo> GangHub::TryGo() {
  if (!joining_ || !own_steps_.has_value() || cause_.has_value()) return std::nullopt;
  for (const auto& [rank, peer] : peers_) {
    if (!HasJoined(peer)) return std::nullopt;
  }
  GangGo go;
  go.address = CommonAddress();
  if (go.address.empty() || (!IsPrivateAddress(go.address) && PrivateComes())) return std::nullopt;
  const absl::StatusOr<int> port = FreePort(go.address);
  if (!port.ok()) return std::nullopt;
  go.port = *port;
  go.resume_step = CommonStep();
  joining_ = false;
  for (auto& [rank, peer] : peers_) {
    bool told = false;
    for (Line& line : peer.lines) {
      const bool chosen = !told && line.joined && !line.translated && line.address == go.address;
      if (!chosen) {
        line.line->Close();
        continue;
      }
      told = true;
      line.line->Send({{"t", "go"},
                       {"address", go.address},
                       {"port", go.port},
                       {"resume_step", go.resume_step}});
      line.line->Pump();
    }
    std::erase_if(peer.lines, [](const Line& line) { return !line.line->open(); });
  }
  return go;
}

std::string GangHub::WhyNot() const {
  std::vector<std::string> missing, reached;
  bool translated = false;
  for (const auto& [rank, peer] : peers_) {
    const std::string name = GangNodeName(gang_, rank);
    if (!HasJoined(peer)) {
      missing.push_back(peer.lines.empty() ? name
                                           : absl::StrCat(name, ", which waits for its GPUs"));
      continue;
    }
    std::set<std::string> addresses;
    for (const Line& line : peer.lines) {
      if (line.translated) translated = true;
      if (!line.translated) addresses.insert(line.address);
    }
    reached.push_back(absl::StrCat(name, " reaches ",
                                   addresses.empty() ? "none" : absl::StrJoin(addresses, ", ")));
  }
  if (!missing.empty()) {
    return absl::StrCat(absl::StrJoin(missing, " and "), " did not come within ",
                        absl::ToInt64Seconds(times_.join), " s");
  }
  if (!own_steps_.has_value()) {
    return absl::StrCat(GangNodeName(gang_, 0), " had no free GPUs for ",
                        absl::ToInt64Seconds(times_.join), " s");
  }
  return absl::StrCat("no address of ", GangNodeName(gang_, 0),
                      " is reached by all: ", absl::StrJoin(reached, "; "),
                      translated ? "; an address is translated on the way" : "");
}

void GangHub::Conclude(const GangOutcome& outcome) {
  for (auto& [rank, peer] : peers_) {
    for (Line& line : peer.lines) {
      line.line->Send({{"t", "over"},
                       {"rank", outcome.rank},
                       {"code", outcome.code},
                       {"reason", outcome.reason},
                       {"retry", outcome.retry},
                       {"delay_ms", outcome.delay_ms}});
      line.line->Pump();
    }
  }
}

bool GangHub::IsSent() const {
  for (const auto& [rank, peer] : peers_) {
    for (const Line& line : peer.lines) {
      if (line.line->open() && line.line->has_unsent()) return false;
    }
  }
  return true;
}

}  // namespace gpuctl
