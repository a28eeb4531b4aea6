#include "client/show/give_secrets.h"

#include <map>
#include <memory>
#include <string>

#include "client/market/secret_values.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/spec/run_spec.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"

namespace gpuctl {

absl::Status GiveSecrets(CommandContext& context, RunStore& store, const RunRow& row) {
  ASSIGN_OR_RETURN(const RunRow whole, store.Get(row.run_id));
  ASSIGN_OR_RETURN(const StoredSpec stored, ParseStoredSpec(whole.spec_json));
  RunSpec spec;
  spec.secrets.assign(stored.spec.secret_names().begin(), stored.spec.secret_names().end());
  ASSIGN_OR_RETURN(const auto values, ReadSecrets(context, spec));
  gpuctl::v1::StartJobRequest request;
  *request.mutable_spec() = stored.spec;
  request.set_spec_digest(stored.spec_digest);
  request.set_expected_node_id(whole.node_id);
  for (const auto& [name, value] : values) (*request.mutable_secrets())[name] = value;
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
  return calls.StartJob(request).status();
}

}  // namespace gpuctl
