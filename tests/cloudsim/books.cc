#include "tests/cloudsim/books.h"

#include "tests/cloudsim/sim_clock.h"

namespace gpuctl::cloudsim {

double Cost(const Charge& charge, int64_t now_ms) {
  const int64_t end = charge.to_ms != 0 ? charge.to_ms : now_ms;
  const int64_t lasted = end > charge.from_ms ? end - charge.from_ms : 0;
  const int64_t quanta = (lasted + charge.quantum_ms - 1) / charge.quantum_ms;
  return static_cast<double>(quanta * charge.quantum_ms) / 3.6e6 * charge.usd_per_hour;
}

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kBooting:
      return "booting";
    case Phase::kRunning:
      return "running";
    case Phase::kStopped:
      return "stopped";
    case Phase::kFailed:
      return "failed";
    case Phase::kEnding:
      return "ending";
    case Phase::kEnded:
      return "ended";
  }
  return "";
}

void Instance::HasGpus(const Json& row, const std::string& market_name) {
  gpu_name = market_name;
  gpu_count = static_cast<int>(IntegerAt(row, "gpus"));
  spec.gpu_name = StringAt(row, "driver");
  spec.gpu_count = gpu_count;
  spec.gpu_memory_mib = IntegerAt(row, "mib");
}

double Instance::Billed(int64_t now_ms) const {
  double sum = traffic_usd;
  for (const Charge& charge : charges) sum += Cost(charge, now_ms);
  return sum;
}

void Instance::Enter(Phase next, int64_t now_ms, const std::string& by) {
  phase = next;
  states.push_back({{"state", PhaseName(next)}, {"at", Rfc3339(now_ms)}, {"by", by}});
  if (next == Phase::kEnding || (next == Phase::kEnded && ended_by.empty())) ended_by = by;
}

void Instance::StartCharge(const std::string& kind, double rate, int64_t quantum_ms,
                           int64_t now_ms) {
  Charge charge;
  charge.kind = kind;
  charge.usd_per_hour = rate;
  charge.quantum_ms = quantum_ms;
  charge.from_ms = now_ms;
  charges.push_back(charge);
}

void Instance::StopCharges(const std::string& kind, int64_t now_ms) {
  for (Charge& charge : charges) {
    if (charge.to_ms == 0 && (kind.empty() || charge.kind == kind)) charge.to_ms = now_ms;
  }
}

}  // namespace gpuctl::cloudsim
