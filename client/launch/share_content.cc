#include "client/launch/share_content.h"

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/at_once.h"
#include "common/base/bounded_json.h"
#include "common/base/byte_buffer.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr int kShareKeyBytes = 32;
constexpr size_t kTakersAtOnce = 8;
constexpr size_t kMostAnswer = 64 << 10;

absl::Status Tell(ByteStream& stream, const nlohmann::json& line) {
  const std::string text = absl::StrCat(line.dump(), "\n");
  ByteBuffer bytes;
  memcpy(bytes.Prepare(text.size()), text.data(), text.size());
  bytes.Commit(text.size());
  return stream.Send(bytes);
}

// Returns the agent's line, or the error in it.
absl::StatusOr<nlohmann::json> Hear(ByteStream& stream) {
  ByteBuffer said;
  while (said.view().find('\n') == absl::string_view::npos) {
    if (said.size() > kMostAnswer) return absl::UnknownError("its agent says too much");
    RETURN_IF_ERROR(stream.Receive(said));
  }
  const nlohmann::json json = ParseBoundedJson(said.view().substr(0, said.view().find('\n')));
  if (!json.is_object()) return absl::UnknownError("its agent says something else");
  const auto error = json.find("error");
  if (error == json.end()) return json;
  return absl::UnavailableError(error->is_string() ? error->get<std::string>() : "it failed");
}

absl::Status TakeFrom(const nlohmann::json& place, const std::string& key, const Taker& taker) {
  if (taker.trees.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<AgentStream> stream, taker.links->RunAgent("fetch"));
  nlohmann::json order = {{"key", key},
                          {"addresses", place["addresses"]},
                          {"port", place["port"]},
                          {"trees", taker.trees}};
  RETURN_IF_ERROR(Tell(*stream, order));
  return Hear(*stream).status();
}

}  // namespace

absl::Status ShareContent(LinkFactory& giver, std::vector<Taker>& takers) {
  const std::string key = RandomHex(kShareKeyBytes);
  // It gives as long as this stream is open.
  std::unique_ptr<AgentStream> gives;
  const auto begin = [&]() -> absl::StatusOr<nlohmann::json> {
    ASSIGN_OR_RETURN(gives, giver.RunAgent("give"));
    RETURN_IF_ERROR(Tell(*gives, {{"key", key}}));
    ASSIGN_OR_RETURN(nlohmann::json place, Hear(*gives));
    if (!place.contains("addresses") || !place.contains("port")) {
      return absl::UnknownError("its agent does not say where it is");
    }
    return place;
  };
  const absl::StatusOr<nlohmann::json> place = begin();
  ForEachAtOnce(takers.size(), kTakersAtOnce, [&](size_t index) {
    Taker& taker = takers[index];
    taker.result = place.ok() ? TakeFrom(*place, key, taker) : place.status();
  });
  return place.status();
}

}  // namespace gpuctl
