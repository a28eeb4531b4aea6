// What down tells and asks about a machine.
#ifndef GPUCTL_CLIENT_VERBS_DOWN_TEXT_H_
#define GPUCTL_CLIENT_VERBS_DOWN_TEXT_H_

#include <string>
#include <vector>

#include "client/runs/context.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {

// What is on a machine and not here, for people.
struct NotHomeOn {
  std::vector<std::string> wanted;  // for this it stays: "train-1: 2 checkpoints (1.20 GB): …"
  std::vector<std::string> others;  // "train-1: 3 older checkpoints (3.60 GB)"
  std::vector<std::string> ways;    // to bring what is wanted
  bool unknown = false;             // it could not be found out for a run, which was told

  std::string Wanted() const;
  std::string All() const;
};

// Returns the market's id of the machine, or its label before it has one.
std::string NameOfMachine(const Lease& lease);

// Returns "7 (RTX 4090, $0.30/h at vast)".
std::string MachineAndPrice(const Lease& lease);

// Says what is lost with a machine; `live`: the runs that are live on it.
std::string LossText(const NotHomeOn& told, const std::vector<std::string>& live);

// Returns the question about a machine and all the runs that are live on it.
std::string EndQuestion(const Lease& lease, const std::vector<std::string>& live);

// Returns the commands that bring what is wanted: one for all runs where the machine's are of one
// batch.
std::string HowToBringAll(CommandContext& context, const Lease& lease, const NotHomeOn& found);

// Says which batches will rent again: who ends all bills may have forgotten them. `only`: of this
// batch; "": of all.
void TellOfBatches(CommandContext& context, const std::string& only);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_DOWN_TEXT_H_
