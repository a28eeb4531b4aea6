// What all verbs take, as they declare it.
#ifndef GPUCTL_CLIENT_VERBS_DESCRIBE_VERBS_H_
#define GPUCTL_CLIENT_VERBS_DESCRIBE_VERBS_H_

#include <string>

#include "client/base/flag_set.h"
#include "client/runs/context.h"

namespace gpuctl {

// Asks a verb what it takes; it does nothing else. Empty for an unknown verb.
VerbText DescribeVerb(CommandContext& context, const std::string& name);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_DESCRIBE_VERBS_H_
