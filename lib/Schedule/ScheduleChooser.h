// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_SCHEDULE_SCHEDULECHOOSER_H
#define REFOLD_LIB_SCHEDULE_SCHEDULECHOOSER_H

#include "refold/Schedule/Schedule.h"

namespace refold {

/// Chooses the schedule of one cascade, by its index sets and extents.
class ScheduleChooser {
public:
  ScheduleChooser(CascadeOp cascade, IndexSets sets, const TargetFacts &target)
      : cascade(cascade), sets(std::move(sets)), target(target) {}
  Schedule choose();

private:
  static constexpr int kNone = -1;
  static constexpr int64_t kFewRows = 16;
  bool isRole(unsigned i, CascadeOp::Role role) {
    return cascade.getRoles()[i] == role;
  }
  int64_t extent(unsigned i) { return cascade.getExtents()[i]; }
  bool isLarge(unsigned i, int64_t least) {
    return mlir::ShapedType::isDynamic(extent(i)) || extent(i) >= least;
  }
  std::string name(unsigned i) { return cascade.indexName(i).str(); }

  // ChooseSchedule.cpp: rows, columns, elements by themselves.
  int chooseLaneRow();
  int groupedRow(int stream);
  int turnedRow(int lane);
  int chooseTileRow(int except, int64_t wanted = 2);
  void chooseElementwise(Schedule &s);
  void chooseColumns(Schedule &s, int lane, int row, int stream);
  void chooseRows(Schedule &s, int row, int stream);
  void chooseSegments(Schedule &s, int row, int stream);

  // ChooseProducts.cpp: contractions, and states that are products.
  int64_t rowsSharing(unsigned i);
  int chooseSharedRow(int except);
  bool isDenseAlongSum();
  bool readsHalvesAlong(int stream);
  bool hasPairsInTiles();
  int64_t fewRows(int row, int64_t most = kFewRows);
  int64_t rowsAlongSum();
  int64_t bytesOfPanels();
  bool mayOwnPanels(int row, int stream);
  void chooseMatrix(Schedule &s, int row, int stream);
  bool takesLargeGroups(const Schedule &s, int sum);
  void chooseProduct(Schedule &s, int lane, int row);
  bool comparesPositions(int stream);
  bool sumsByColumns();
  uint64_t placesOfAllSums();
  bool addSharedPacks(Schedule &s, int row);
  void chooseWholeRows(Schedule &s, int stream);
  void choosePacks(Schedule &s, int row);

  CascadeOp cascade;
  IndexSets sets;
  const TargetFacts &target;
};

/// Lays what the attribute says over what was chosen.
mlir::LogicalResult overlaySchedule(CascadeOp cascade,
                                    mlir::DictionaryAttr attr, Schedule &s);

} // namespace refold

#endif // REFOLD_LIB_SCHEDULE_SCHEDULECHOOSER_H
