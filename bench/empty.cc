// What the start of a C++ process costs by itself: the floor that P1 is compared with.
#include <iostream>

int main() {
  std::cout.flush();
  return 0;
}
