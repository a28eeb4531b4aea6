// Does nothing. P1 compares with it the cost of starting a C++ process.
#include <iostream>

int main() {
  std::cout.flush();
  return 0;
}
