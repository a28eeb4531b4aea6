#include "client/warm/warm_links.h"

#include <atomic>
#include <utility>

#include "client/warm/holder.h"
#include "client/warm/warm_channel.h"
#include "client/warm/warm_socket.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

class WarmLinks : public LinkFactory {
 public:
  WarmLinks(WarmLinkOptions options, std::unique_ptr<LinkFactory> fresh)
      : options_(std::move(options)), fresh_(std::move(fresh)) {}

  ~WarmLinks() override {
    if (!reached_ || warm_) return;
    const std::optional<std::string> bridge = fresh_->WaitingBridge();
    // Whatever keeps a holder from starting, the next command connects by itself.
    (void)StartHolder({options_.target, options_.state_dir, bridge.value_or(""), options_.idle});
  }

  absl::StatusOr<std::unique_ptr<Link>> Connect() override { return Note(fresh_->Connect()); }

  absl::StatusOr<std::unique_ptr<Link>> ConnectForCalls() override {
    if (std::optional<std::string> bridge = fresh_->WaitingBridge(); bridge.has_value()) {
      UniqueFd data;
      std::unique_ptr<RemoteEnd> end =
          Borrow({kBridgeMagic, /*repeats=*/true, *std::move(bridge)}, data, nullptr);
      if (end != nullptr) {
        return MakeLinkOver(std::move(end), std::move(data), [this] { fresh_->ForgetPrograms(); });
      }
    }
    return Note(fresh_->Connect());
  }

  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string& command) override {
    return RunStreaming(command, nullptr);
  }

  absl::StatusOr<std::unique_ptr<RemoteCommand>> RunStreaming(
      const std::string& command, std::function<void(absl::string_view)> on_stderr) override {
    UniqueFd data;
    std::unique_ptr<RemoteEnd> end =
        Borrow({kExecMagic, /*repeats=*/false, ExecLine(command)}, data, on_stderr);
    if (end != nullptr) return MakeCommandOver(std::move(end), std::move(data));
    return Note(fresh_->RunStreaming(command, std::move(on_stderr)));
  }

  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string& arguments) override {
    return Note(fresh_->RunAgent(arguments));
  }
  std::optional<NodePlatform> platform() override { return fresh_->platform(); }
  absl::StatusOr<UniqueFd> Dial() override { return fresh_->Dial(); }
  absl::Status TryLogin() override { return fresh_->TryLogin(); }
  absl::StatusOr<std::unique_ptr<SshSession>> OpenSshSession() override {
    return fresh_->OpenSshSession();
  }

 private:
  // Returns a command over the warm link, or nothing. After the first failure this process asks no
  // more: what broke once is replaced by connections of its own.
  std::unique_ptr<RemoteEnd> Borrow(const WarmAsk& ask, UniqueFd& data,
                                    std::function<void(absl::string_view)> on_stderr) {
    if (ask.repeats && borrowed_.exchange(true)) return nullptr;
    if (cold_) return nullptr;
    const absl::StatusOr<WarmPlace> place = FindWarmPlace(options_.state_dir, options_.target);
    if (!place.ok()) return nullptr;
    absl::StatusOr<std::unique_ptr<WarmChannel>> channel =
        WarmChannel::Open(*place, ask, data, std::move(on_stderr));
    if (!channel.ok()) {
      cold_ = true;
      return nullptr;
    }
    warm_ = true;
    return *std::move(channel);
  }

  template <typename Result>
  Result Note(Result result) {
    if (result.ok()) reached_ = true;
    return result;
  }

  const WarmLinkOptions options_;
  const std::unique_ptr<LinkFactory> fresh_;
  std::atomic<bool> reached_{false};   // by a connection of our own
  std::atomic<bool> warm_{false};      // by the warm link
  std::atomic<bool> cold_{false};      // there is no warm link, or it failed
  std::atomic<bool> borrowed_{false};  // a bridge was asked for: the next one is our own
};

}  // namespace

std::unique_ptr<LinkFactory> MakeWarmLinks(WarmLinkOptions options,
                                           std::unique_ptr<LinkFactory> fresh) {
  return std::make_unique<WarmLinks>(std::move(options), std::move(fresh));
}

}  // namespace gpuctl
