// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_DEFERREDCERTIFICATES_H
#define REFOLD_LIB_DRIVER_DEFERREDCERTIFICATES_H

#include "refold/Driver/Driver.h"
#include "refold/Transforms/FuseCascades.h"
#include <atomic>
#include <thread>

namespace refold {

/// The certificates of one program, made on a thread of their own while code is
/// generated for what they are about: nearly all hold.
class DeferredCertificates {
public:
  explicit DeferredCertificates(StageTimes *times) : times(times) {}
  ~DeferredCertificates();

  /// Filled by `fuse`: kernels are numbered as the cascades of its report.
  std::vector<DeferredCertificate> entries;
  CertificateStore store;

  /// Begins to make them. Nothing else may use their expressions from here on.
  void start();
  /// Waits for them and writes them into the report. False if one does not
  /// hold for the program that it is about.
  bool settle(FuseReport &report);
  /// Whether it is known already that one does not hold.
  bool hasFailed() const { return !allHold; }
  /// What was found, for who begins anew: `FuseOptions::known`. After `settle`.
  const std::map<std::string, std::string> &found() const { return known; }

private:
  void work();

  StageTimes *times;
  std::thread thread;
  bool isDone = false;
  std::atomic<bool> allHold{true};
  std::vector<double> ms;
  std::map<std::string, std::string> known;
};

} // namespace refold

#endif // REFOLD_LIB_DRIVER_DEFERREDCERTIFICATES_H
