#include "client/streams/ask_job.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "client/link/agent_calls.h"
#include "client/streams/mirror.h"
#include "common/base/ids.h"

namespace gpuctl {
namespace {

// Takes what belongs to the answer; of a lifecycle as much as a mirror stores. Returns true when
// the answer is whole.
bool TakeInto(const gpuctl::v1::WatchReply& reply, JobAnswer& answer, bool& answered) {
  const auto most = static_cast<size_t>(MirrorLimits().lifecycle);
  for (const gpuctl::v1::Chunk& chunk : reply.chunks()) {
    const bool next = chunk.offset() == static_cast<int64_t>(answer.lifecycle.size());
    if (chunk.stream() == gpuctl::v1::STREAM_LIFECYCLE && next && !chunk.display_only()) {
      answer.lifecycle += chunk.data().substr(0, most - answer.lifecycle.size());
    }
  }
  if (reply.has_heartbeat()) {
    answered = true;
    answer.heartbeat = reply.heartbeat();
  }
  return answered &&
         (answer.lifecycle.size() == most ||
          static_cast<int64_t>(answer.lifecycle.size()) >= answer.heartbeat.lifecycle_size());
}

}  // namespace

absl::StatusOr<JobAnswer> AskJob(Link& link, const std::string& job_id,
                                 const std::vector<gpuctl::v1::Cursor>& cursors,
                                 absl::Duration patience) {
  gpuctl::v1::WatchRequest request;
  request.set_job_id(job_id);
  request.set_client_id(absl::StrCat("ask-", RandomHex(8)));
  for (const gpuctl::v1::Cursor& cursor : cursors) *request.add_cursors() = cursor;
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(patience), GPR_TIMESPAN));
  const std::unique_ptr<grpc::ClientReaderInterface<gpuctl::v1::WatchReply>> reader =
      link.agent().stub->Watch(&context, request);
  JobAnswer answer;
  bool answered = false, whole = false;
  gpuctl::v1::WatchReply reply;
  while (!whole && reader->Read(&reply)) whole = TakeInto(reply, answer, answered);
  if (whole) {
    context.TryCancel();
    while (reader->Read(&reply)) {
    }
  }
  const absl::Status ended = FromGrpc(reader->Finish());
  if (whole) return answer;
  if (absl::IsDeadlineExceeded(ended) || ended.ok()) {
    return absl::UnavailableError(absl::StrCat("ask for job ", job_id, ": no answer"));
  }
  return ended;
}

}  // namespace gpuctl
