// Renting many machines in one request: the tasks of an array of a cluster's scheduler.
#ifndef GPUCTL_PROVISIONING_RENTAL_RENT_ARRAY_H_
#define GPUCTL_PROVISIONING_RENTAL_RENT_ARRAY_H_

#include <vector>

#include "absl/status/statusor.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {

// Rents `count` machines of terms.offer by one Provider::RentArray, of which `at_once` may run at
// the same time (0: all). Each is a lease of its own, with a lock of its own: all are intents
// before the request, and all are rented after it. When the answer is lost, it lists the account
// for up to two minutes. Errors as those of Rent, for all of them; a refusal is certain, so that a
// smaller array may be tried after RESOURCE_EXHAUSTED.
absl::StatusOr<std::vector<Rental>> RentArray(Ledger& ledger, Provider& provider,
                                              const LeaseTerms& terms, int count, int at_once,
                                              const RentOptions& options, Clock& clock,
                                              const RentalHooks& hooks);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_RENTAL_RENT_ARRAY_H_
