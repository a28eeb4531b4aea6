#include "trainer/jinja/names.h"

namespace gpuctl::trainer::jinja {

Names::Names() {
  parts_.push_back(std::make_unique<Part>());
  open_.push_back(parts_.back().get());
  lists_.push_back(&open_.back()->events);
}

void Names::Load(const std::string& name) {
  ++loads_[name];
  lists_.back()->push_back({Event::Kind::kLoad, name, {}});
}

void Names::Store(const std::string& name) {
  lists_.back()->push_back({Event::Kind::kStore, name, {}});
}

Names::Hidden Names::BeginPart(const std::vector<std::string>& own) {
  parts_.push_back(std::make_unique<Part>());
  Part& part = *parts_.back();
  part.around = open_.back();
  for (const std::string& name : own) part.symbols.sources[name] = Source::kAround;
  open_.push_back(&part);
  lists_.push_back(&part.events);
  return part.hidden;
}

void Names::Own(const std::string& name) { open_.back()->symbols.sources[name] = Source::kAround; }

void Names::EndPart() {
  open_.pop_back();
  lists_.pop_back();
}

void Names::BeginBranches() {
  lists_.back()->push_back({Event::Kind::kBranches, "", {}});
  lists_.push_back(nullptr);
}

void Names::NextBranch() {
  // No list before it grows while its last event is open.
  Event& event = lists_[lists_.size() - 2]->back();
  event.branches.emplace_back();
  lists_.back() = &event.branches.back();
}

void Names::EndBranches() { lists_.pop_back(); }

void Names::Resolve() {
  for (const std::unique_ptr<Part>& part : parts_) {
    Follow(*part, part->events, &part->symbols);
    for (const auto& [name, source] : part->symbols.sources) {
      if (source == Source::kNowhere) part->hidden->push_back(name);
    }
  }
}

bool Names::KnownAround(const Part& part, const std::string& name) {
  for (const Part* around = part.around; around != nullptr; around = around->around) {
    if (around->symbols.sources.count(name) > 0) return true;
  }
  return false;
}

void Names::Follow(const Part& part, const std::vector<Event>& events, Symbols* symbols) {
  for (const Event& event : events) {
    if (event.kind == Event::Kind::kLoad) {
      if (!KnownAround(part, event.name)) symbols->sources.emplace(event.name, Source::kAround);
    } else if (event.kind == Event::Kind::kStore) {
      symbols->stored.insert(event.name);
      symbols->sources.emplace(event.name,
                               KnownAround(part, event.name) ? Source::kAround : Source::kNowhere);
    } else {
      std::vector<Symbols> branches;
      for (const std::vector<Event>& branch : event.branches) {
        branches.push_back(*symbols);
        Follow(part, branch, &branches.back());
      }
      Join(branches, symbols);
    }
  }
}

// Of a name that several branches have, the last one counts; but one that is not set in all of
// them is that of around the part.
void Names::Join(const std::vector<Symbols>& branches, Symbols* symbols) {
  std::map<std::string, size_t> stores;
  for (const Symbols& branch : branches) {
    for (const std::string& name : branch.stored) {
      if (symbols->stored.count(name) == 0) ++stores[name];
    }
  }
  for (const Symbols& branch : branches) {
    for (const auto& [name, source] : branch.sources) symbols->sources[name] = source;
    symbols->stored.insert(branch.stored.begin(), branch.stored.end());
  }
  for (const auto& [name, count] : stores) {
    if (count < branches.size()) symbols->sources[name] = Source::kAround;
  }
}

}  // namespace gpuctl::trainer::jinja
