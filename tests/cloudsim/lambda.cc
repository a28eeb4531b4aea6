#include "tests/cloudsim/service.h"
namespace gpuctl::cloudsim {
std::string LambdaRoute(const Call&) { return "other"; }
Reply HandleLambda(World&, const Call&) { return Reply(); }
Reply LambdaError(int status, const std::string& code, const std::string&) { return JsonReply(status, {{"error", code}}); }
}
