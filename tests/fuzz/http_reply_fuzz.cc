// Fuzzes the replies that the agent's own HTTP client reads, and the URLs it is given.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/match.h"
#include "agent/https/https_client.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr size_t kMaxBody = 4096;
  const auto whole = gpuctl::ParseHttpReply(text, /*ended=*/true, kMaxBody);
  if (whole.ok() && (whole->body.size() > kMaxBody || whole->status < 100)) abort();
  // At the end of the stream nothing more can be waited for.
  if (absl::IsUnavailable(whole.status())) abort();
  // A reply that was complete before the end is the same at the end.
  const auto open = gpuctl::ParseHttpReply(text, /*ended=*/false, kMaxBody);
  if (open.ok() && (!whole.ok() || whole->body != open->body)) abort();
  if (const auto url = gpuctl::ParseHttpsUrl(text); url.ok()) {
    if (url->host.empty() || url->port < 1 || url->port > 65535) abort();
    if (!absl::StartsWith(url->path, "/")) abort();
  }
  return 0;
}
