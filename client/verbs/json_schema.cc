// gpuctl json-schema: the JSON Schemas of what gpuctl prints with -o json and -o jsonl.
#include <nlohmann/json.hpp>

#include "client/base/exit_codes.h"
#include "client/runs/context.h"
#include "client/schemas/json_schemas.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<int> CmdJsonSchema(CommandContext& context, std::vector<std::string> args) {
  std::string name;
  VerbParser parser(
      context, "json-schema [VERB] [FLAGS]",
      "Prints the JSON Schema of what a verb prints with -o json, and of each line with\n"
      "-o jsonl. \"error\" is that of errors, \"notify\" that of what a command of notify:\n"
      "gets. Without a name it lists the schemas.",
      "  gpuctl json-schema ps > ps.schema.json    for a validator, or to make types of it");
  parser.Option("VERB", name, "A verb, error or notify");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (!name.empty()) {
    ASSIGN_OR_RETURN(const nlohmann::ordered_json schema, WholeSchema(name));
    // It is a document of its own kind: no schema version of ours belongs into it.
    context.PrintOwnText(schema.dump(context.json() ? -1 : 2));
  } else if (context.json()) {
    context.PrintJson({{"schemas", SchemaNames()}});
  } else {
    context.PrintLines(SchemaNames());
  }
  return kExitOk;
}

}  // namespace gpuctl
