// gpuctl run-schema: the JSON Schema of the run file, for editors and checks.
#include <nlohmann/json.hpp>

#include "client/base/exit_codes.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<int> CmdRunSchema(CommandContext& context, std::vector<std::string> args) {
  VerbParser parser(
      context, "run-schema [FLAGS]",
      "Prints the JSON Schema of the run file: editors complete and check run files\n"
      "with it. It is made of the table with which gpuctl reads them.",
      "  gpuctl run-schema > run.schema.json\n"
      "  # yaml-language-server: $schema=run.schema.json    as a run file's first line");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  // It is a document of its own kind: no schema version of ours belongs into it.
  context.PrintOwnText(RunFileSchema().dump(context.json() ? -1 : 2));
  return kExitOk;
}

}  // namespace gpuctl
