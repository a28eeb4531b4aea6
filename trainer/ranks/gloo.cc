// LibTorch's process group over Gloo, for tensors on the CPU. Tensors of a device go through the
// CPU's memory.

#include "trainer/ranks/collectives.h"

#ifdef TRAINER_HAS_GLOO

// Some packages of LibTorch say it themselves.
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO
#endif
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/ranks/store_held.h"

namespace gpuctl::trainer {
namespace {

// The monitor ends what waits too long; this only must not be shorter than any honest wait.
constexpr std::chrono::hours kNever{24 * 30};
constexpr std::chrono::milliseconds kLook{100};

// Returns the address from which this machine reaches rank 0, or "". Sends nothing.
std::string OwnAddress(const Ranks& ranks) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(ranks.address.c_str(), std::to_string(ranks.port).c_str(), &hints, &found) != 0) {
    return "";
  }
  std::string address;
  const int socket_fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  char text[NI_MAXHOST] = "";
  if (socket_fd >= 0 && connect(socket_fd, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(socket_fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) == 0) {
    address = text;
  }
  if (socket_fd >= 0) close(socket_fd);
  freeaddrinfo(found);
  const bool loopback = address.rfind("127.", 0) == 0 || address == "::1";
  // A name of this machine that means itself would tell the others nothing.
  return loopback && ranks.local_size < ranks.size ? "" : address;
}

using Group = c10d::ProcessGroupGloo;

// $GLOO_SOCKET_IFNAME, else the interface of the way to rank 0.
c10::intrusive_ptr<Group::Options> OptionsFor(const Ranks& ranks) {
  c10::intrusive_ptr<Group::Options> options =
      Group::Options::create(std::chrono::duration_cast<std::chrono::milliseconds>(kNever));
  const char* const named = std::getenv("GLOO_SOCKET_IFNAME");
  std::string names = named == nullptr ? "" : named;
  while (!names.empty()) {
    const size_t comma = std::min(names.find(','), names.size());
    const std::string name = names.substr(0, comma);
    if (!name.empty()) options->devices.push_back(Group::createDeviceForInterface(name));
    names.erase(0, comma + 1);
  }
  if (!options->devices.empty()) return options;
  const std::string address = OwnAddress(ranks);
  options->devices.push_back(address.empty() ? Group::createDefaultDevice()
                                             : Group::createDeviceForHostname(address));
  return options;
}

class GlooPending : public Collectives::Pending {
 public:
  GlooPending(c10::intrusive_ptr<c10d::Work> work, at::Tensor tensor, at::Tensor host, Peers peers)
      : work_(std::move(work)),
        tensor_(std::move(tensor)),
        host_(std::move(host)),
        peers_(std::move(peers)) {}

  void Wait() override {
    while (!work_->isCompleted()) {
      try {
        work_->wait(kLook);
      } catch (const std::exception&) {  // it took longer, or failed
      }
      if (work_->isCompleted()) break;
      const std::string trouble = peers_.trouble();
      if (!trouble.empty()) ThrowLost(peers_, trouble, "");
    }
    if (!work_->isSuccess()) {
      std::string why = "unknown";
      try {
        work_->wait();
      } catch (const std::exception& error) {
        why = error.what();
      }
      ThrowLost(peers_, peers_.find_trouble(), why.substr(0, why.find('\n')));
    }
    if (!host_.is_same(tensor_)) tensor_.copy_(host_);
  }

 private:
  const c10::intrusive_ptr<c10d::Work> work_;
  const at::Tensor tensor_;
  const at::Tensor host_;
  const Peers peers_;
};

class Gloo : public Collectives {
 public:
  Gloo(const Ranks& ranks, const Store& store, Peers peers)
      : peers_(std::move(peers)),
        group_(c10::make_intrusive<Group>(
            c10::make_intrusive<c10d::PrefixStore>("gloo/", store.held().store),
            static_cast<int>(ranks.rank), static_cast<int>(ranks.size), OptionsFor(ranks))) {}

  std::unique_ptr<Pending> BeginSum(const at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors = {tensor.is_cpu() ? tensor : tensor.cpu()};
    return std::make_unique<GlooPending>(group_->allreduce(tensors), tensor, tensors[0], peers_);
  }

  void Broadcast(const at::Tensor& tensor, int64_t from) override {
    std::vector<at::Tensor> tensors = {tensor.is_cpu() ? tensor : tensor.cpu()};
    c10d::BroadcastOptions options;
    options.rootRank = static_cast<int>(from);
    GlooPending(group_->broadcast(tensors, options), tensor, tensors[0], peers_).Wait();
  }

  std::string name() const override { return "gloo"; }

 private:
  const Peers peers_;
  const c10::intrusive_ptr<Group> group_;
};

}  // namespace

std::unique_ptr<Collectives> JoinGloo(const Ranks& ranks, const Store& store, Peers peers) {
  try {
    return std::make_unique<Gloo>(ranks, store, peers);
  } catch (const std::exception& error) {
    const std::string trouble = peers.trouble();
    if (!trouble.empty()) ThrowLost(peers, trouble, "");
    const std::string why = error.what();
    throw ConfigError(
        "join the other processes over Gloo: " + why.substr(0, why.find('\n')),
        "GLOO_SOCKET_IFNAME names the network interface that the other machines reach");
  }
}

}  // namespace gpuctl::trainer

#else

namespace gpuctl::trainer {

std::unique_ptr<Collectives> JoinGloo(const Ranks&, const Store&, Peers) { return nullptr; }

}  // namespace gpuctl::trainer

#endif
