// The provider contract over a real Slurm. contract_test.py starts the cluster and this program.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "provisioning/slurm/slurm_provider.h"
#include "tests/contract/provider_contract.h"
#include "tests/support/temp_dir.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kGoneWithin = absl::Minutes(1);

// Runs commands by the program of $GPUCTL_TEST_SSH, each of whose lines is a word.
class TestLogin : public LoginNode {
 public:
  const SshAddress& address() const override { return address_; }
  absl::StatusOr<CommandAnswer> Run(const std::string& command, absl::string_view input) override {
    dir_.Write("in", input);
    const UniqueFd in(file_ops::Open(dir_.Sub("in"), O_RDONLY));
    const UniqueFd out(file_ops::Open(dir_.Sub("out"), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    const UniqueFd err(file_ops::Open(dir_.Sub("err"), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    SpawnOptions spawn;
    spawn.argv = absl::StrSplit(getenv("GPUCTL_TEST_SSH"), '\n');
    spawn.argv.push_back(command);
    spawn.stdin_fd = in.get();
    spawn.stdout_fd = out.get();
    spawn.stderr_fd = err.get();
    const absl::StatusOr<pid_t> pid = Spawn(spawn);
    if (!pid.ok()) return pid.status();
    int status = 0;
    while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) == 255) return absl::UnknownError("no ssh");
    return CommandAnswer{WEXITSTATUS(status), ReadFileToString(dir_.Sub("out")).value(),
                         ReadFileToString(dir_.Sub("err")).value()};
  }

 private:
  const TempDir dir_;
  const SshAddress address_{"login", 0, "ada", {}, ""};
};

// Slurm ends a job a moment after it was cancelled, when its processes are gone. This waits for it.
class PatientSlurm : public Provider {
 public:
  PatientSlurm()
      : slurm_(MakeSlurmProvider(std::make_shared<TestLogin>(), SlurmOptions(), Clock::Real())) {}
  absl::string_view name() const override { return slurm_->name(); }
  ProviderTraits traits() const override { return slurm_->traits(); }
  absl::StatusOr<std::vector<Offer>> ListOffers(const Requirements& requirements) override {
    return slurm_->ListOffers(requirements);
  }
  absl::StatusOr<Instance> Rent(const Offer& offer, const RentOptions& options,
                                absl::string_view label) override {
    return slurm_->Rent(offer, options, label);
  }
  absl::StatusOr<Instance> Describe(const InstanceId& id) override { return slurm_->Describe(id); }
  absl::StatusOr<std::vector<Instance>> ListInstances() override { return slurm_->ListInstances(); }
  absl::Status Terminate(const InstanceId& id) override {
    const absl::Status ended = slurm_->Terminate(id);
    Clock& clock = Clock::Real();
    const absl::Duration patience = clock.SinceBoot() + kGoneWithin;
    while (!absl::IsNotFound(slurm_->Describe(id).status()) && clock.SinceBoot() < patience) {
      clock.SleepFor(absl::Milliseconds(100));
    }
    return ended;
  }

 private:
  const std::unique_ptr<Provider> slurm_;
};

ProviderContractHarness Slurm() {
  ProviderContractHarness harness;
  harness.name = "slurm";
  harness.make = [] { return std::make_unique<PatientSlurm>(); };
  harness.options.start_script = "#!/bin/sh\nexec sleep 600\n";
  harness.requirements.gpus = {{"H100", 1, 0, 0}};
  return harness;
}

INSTANTIATE_TEST_SUITE_P(Cluster, ProviderContract, ::testing::Values(Slurm()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace gpuctl
